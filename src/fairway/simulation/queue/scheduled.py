"""The production scheduler on the virtual clock: it is told what happens, and what it decides is done at once."""

from __future__ import annotations

from fairway.errors import UsageError
from fairway.plan.scheduling.delta import Asked, Left, NodeSeen, QueueSet
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.shape import Gang, Part, Shape
from fairway.plan.scheduling.timeshare import LEAST_RUN
from fairway.simulation.queue.floor import Nodes, Places
from fairway.simulation.queue.hall import Active, Hall
from fairway.state.job import JobKey
from fairway.state.node import Device, Node
from fairway.state.queue import DEFAULT_QUEUE, Queue

MOST_ROUNDS = 100
"""So often at most it decides at one moment: whoever is told to leave has left before the next round."""
_NAMESPACE = "simulated"


class Scheduled:
    """One queue in which runs take turns. Runs can resume; a gang that is larger than a node takes whole nodes."""

    def __init__(self) -> None:
        self._scheduler = Scheduler()
        self._nodes: Nodes | None = None
        self._wake: float | None = None

    def arrives(self, job: Active, hall: Hall) -> None:
        """It asks for places."""
        self._know(hall.floor.nodes)
        self._scheduler.apply(Asked(_request(job, hall.floor.nodes)), hall.now)

    def departs(self, job: Active, hall: Hall) -> None:
        """The scheduler itself has started it."""

    def runs(self, job: Active, hall: Hall) -> None:
        """Not to be had: a scheduler is taken over with its memory, not in the middle of things."""
        raise UsageError("the scheduler cannot take over a queue that is on its way", fix="forecast with the policy timeshare")

    def ends(self, job: Active, hall: Hall) -> None:
        """It has left for good."""
        self._scheduler.apply(Left(_key(job.index), hall.now, finished=True), hall.now)

    def next_look(self, hall: Hall) -> float | None:
        """When the scheduler wants to be woken, and after each turn while anybody waits."""
        if not hall.waiting:
            return None
        turn = hall.now + LEAST_RUN
        return turn if self._wake is None or self._wake <= hall.now else min(turn, self._wake)

    def decide(self, hall: Hall) -> None:
        """Let it decide, and do what it says, until it is content."""
        for _ in range(MOST_ROUNDS):
            decision = self._scheduler.decide(hall.now)
            self._wake = decision.wake_at
            for start in decision.starts:
                hall.start(hall.waiting[int(start.key.name)], _places([(seat.node, len(seat.devices)) for seat in start.seats]))
            for eviction in decision.evictions:
                self._scheduler.apply(Left(eviction.key, hall.now), hall.now)
                hall.stop(hall.running[int(eviction.key.name)])
            if not decision.evictions:
                return

    def _know(self, nodes: Nodes) -> None:
        if self._nodes is None:
            self._nodes = nodes
            self._scheduler.apply(QueueSet(Queue(DEFAULT_QUEUE, time_slice=LEAST_RUN)), 0.0)
            for index in range(nodes.count):
                self._scheduler.apply(NodeSeen(_node(index, nodes.gpus)), 0.0)


def _key(index: int) -> JobKey:
    return JobKey(_NAMESPACE, str(index))


def _request(job: Active, nodes: Nodes) -> Request:
    gpus = job.entry.gpus
    count = -(-gpus // nodes.gpus)
    part = Part("worker", Shape(gpus=min(gpus, nodes.gpus)), least=count, most=count)
    return Request(_key(job.index), Gang((part,)), job.entry.submitted, user=job.entry.user, name=job.entry.name, resumes=True)


def _node(index: int, gpus: int) -> Node:
    devices = tuple(Device(f"{index}-{number}", number) for number in range(gpus))
    return Node(f"{index:05}", cpu=1.0, memory=1 << 30, devices=devices)


def _places(seats: list[tuple[str, int]]) -> Places:
    held: dict[int, int] = {}
    for node, gpus in seats:
        held[int(node)] = held.get(int(node), 0) + gpus
    return tuple(sorted(held.items()))
