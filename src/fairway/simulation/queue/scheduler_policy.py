"""The production scheduler on the virtual clock: it receives the events, and its decisions are executed immediately."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.errors import UsageError
from fairway.plan.scheduling.delta import NodeChanged, QueueDefined, RunStopped, RunWaiting
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.queueing.time_slice import LEAST_RUN
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.simulation.queue.free_gpus import EqualNodes, Places
from fairway.simulation.queue.queue_state import SimulatedJob, SimulatedQueue
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.queue import DEFAULT_QUEUE, Queue

MOST_ROUNDS = 100
"""Maximum number of decisions at one moment: runs that must leave have left before the next round."""
ROTATING = Queue(DEFAULT_QUEUE, time_slice=LEAST_RUN)
"""The queue for a trace without queues: its runs take turns."""
_NAMESPACE = "simulated"


class SchedulerPolicy:
    """Policy of the production scheduler. Runs can resume; a gang that is larger than a node takes whole nodes."""

    def __init__(self, queues: Sequence[Queue] = (ROTATING,), grace: float = 0.0) -> None:
        """`grace`: seconds between an eviction and the time when the run has saved and left; it keeps working meanwhile."""
        self.scheduler = Scheduler()
        self._queues = tuple(queues)
        self._grace = grace
        self._nodes: EqualNodes | None = None
        self._wake: float | None = None
        self._leaving: dict[int, float] = {}
        """Time at which each evicted run will have left."""

    def arrives(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Submit the job to the scheduler."""
        self._know(hall.floor.nodes)
        self.scheduler.apply(RunWaiting(_request(job, hall.floor.nodes)), hall.now)

    def departs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Do nothing: the scheduler itself has started it."""

    def runs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Raise `UsageError`: a scheduler is restored from its memory, not from a running queue."""
        raise UsageError(
            "the scheduler cannot take over a queue that is already running", fix="use the policy timeshare to forecast"
        )

    def ends(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Report the end of the job to the scheduler."""
        self._leaving.pop(job.index, None)
        self.scheduler.apply(RunStopped(key_of(job.index), hall.now, finished=True), hall.now)

    def next_look(self, hall: SimulatedQueue) -> float | None:
        """Return the time of the next decision.

        It is the scheduler's wake-up time, the end of the current turn while any job waits, or the time when an evicted run has
        left.
        """
        times = list(self._leaving.values())
        if hall.waiting:
            times.append(hall.now + LEAST_RUN)
            if self._wake is not None and self._wake > hall.now:
                times.append(self._wake)
        return min(times, default=None)

    def decide(self, hall: SimulatedQueue) -> None:
        """Execute the scheduler's decisions until there are no more."""
        self._let_go(hall)
        for _ in range(MOST_ROUNDS):
            decision = self.scheduler.decide(hall.now)
            self._wake = decision.wake_at
            for start in decision.starts:
                hall.start(hall.waiting[int(start.key.name)], _places([(seat.node, len(seat.devices)) for seat in start.seats]))
            for eviction in decision.evictions:
                self._leaving[int(eviction.key.name)] = hall.now + self._grace
            at_once = decision.wake_at is not None and decision.wake_at <= hall.now
            if not self._let_go(hall) and not at_once:
                return

    def _let_go(self, hall: SimulatedQueue) -> bool:
        """Stop the evicted runs whose grace is over; return whether there were any."""
        over = [index for index, at in self._leaving.items() if at <= hall.now]
        for index in over:
            del self._leaving[index]
            self.scheduler.apply(RunStopped(key_of(index), hall.now), hall.now)
            hall.stop(hall.running[index])
        return bool(over)

    def _know(self, nodes: EqualNodes) -> None:
        if self._nodes is None:
            self._nodes = nodes
            for queue in self._queues:
                self.scheduler.apply(QueueDefined(queue), 0.0)
            for index in range(nodes.count):
                self.scheduler.apply(NodeChanged(_node(index, nodes.gpus)), 0.0)


def key_of(index: int) -> JobKey:
    """Return the scheduler's key of a job."""
    return JobKey(_NAMESPACE, str(index))


def _request(job: SimulatedJob, nodes: EqualNodes) -> GangRequest:
    gpus = job.entry.gpus
    count = -(-gpus // nodes.gpus)
    part = GangRole("worker", TaskShape(gpus=min(gpus, nodes.gpus)), least=count, most=count)
    entry = job.entry
    return GangRequest(key_of(job.index), GangShape((part,)), entry.submitted, entry.queue, entry.user, entry.name, resumes=True)


def _node(index: int, gpus: int) -> ClusterNode:
    devices = tuple(NodeDevice(f"{index}-{number}", number) for number in range(gpus))
    return ClusterNode(f"{index:05}", cpu=1.0, memory=1 << 30, devices=devices)


def _places(seats: list[tuple[str, int]]) -> Places:
    held: dict[int, int] = {}
    for node, gpus in seats:
        held[int(node)] = held.get(int(node), 0) + gpus
    return tuple(sorted(held.items()))
