"""A simulated cluster that carries out a scheduler's decisions, on a clock that the test advances."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from fairway.plan.scheduling import resource_amount, scheduler_memory
from fairway.plan.scheduling.decision import EvictDecision, SchedulingDecision, StartDecision
from fairway.plan.scheduling.delta import (
    Delta,
    NodeChanged,
    NodeRemoved,
    QueueDefined,
    QueueRemoved,
    RunPlaced,
    RunStopped,
    RunWaiting,
    RunWithdrawn,
)
from fairway.plan.scheduling.gang import WHOLE, GangRole, GangShape, TaskShape, with_sizes
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.queue import Queue

GIB = 1 << 30
GRACE = 30.0
"""Seconds that an evicted gang needs to save and stop."""
MOST_DECISIONS = 50
"""Maximum number of decisions without an event in between."""


def machine(
    name: str, gpus: int = 4, kind: str = "T4", *, cpu: float = 64, memory: int = 256, rack: str = "", sick: int = 0, **more: int
) -> ClusterNode:
    """Return a node with equal GPUs, the first `sick` of them unhealthy; `memory` in GiB."""
    devices = tuple(NodeDevice(f"{name}-{index}", index, kind, 16 * GIB, healthy=index >= sick) for index in range(gpus))
    return ClusterNode(name, cpu, memory * GIB, devices, other=more, rack=rack)


def gang(
    gpus: int = 1, tasks: int = 1, most: int = 0, *, milli: int = WHOLE, kind: str = "", cpu: int = 1000, apart: bool = False
) -> GangShape:
    """Return a gang of one role."""
    shape = TaskShape(cpu=cpu, memory=1024, gpus=gpus, gpu_milli=milli, gpu_types=(kind,) if kind else ())
    return GangShape((GangRole("worker", shape, tasks, max(most, tasks), apart=apart),))


class FakeCluster:
    """Nodes, queues and runs. With several schedulers, all of them must decide the same."""

    def __init__(self, nodes: Iterable[ClusterNode] = (), queues: Iterable[Queue] = (), policy: str = "best-fit") -> None:
        self.policy = policy
        self.schedulers = [Scheduler(policy=policy)]
        self.now = 1000.0
        self.nodes: dict[str, ClusterNode] = {}
        self.queues: dict[str, Queue] = {}
        self.requests: dict[JobKey, GangRequest] = {}
        """Every unfinished run, as submitted."""
        self.waiting: dict[JobKey, GangRequest] = {}
        self.running: dict[JobKey, RunningGang] = {}
        self.lasting: dict[JobKey, float] = {}
        """Remaining seconds of work by run; runs not listed here never end."""
        self.evictions: list[tuple[float, EvictDecision]] = []
        self.started: list[tuple[float, StartDecision]] = []
        self.held: Counter[str] = Counter()
        """GPU-seconds by queue."""
        self.submitted = 0
        """Number of submitted runs."""
        self.wake_at: float | None = None
        self._turn: Counter[JobKey] = Counter()
        self._happens: list[tuple[float, JobKey, int, str]] = []
        """Heap of events: the end of a run, or the end of an eviction."""
        self._sizes: dict[JobKey, dict[str, int]] = {}
        for node in nodes:
            self.put_node(node)
        for queue in queues:
            self.put_queue(queue)

    @property
    def scheduler(self) -> Scheduler:
        """The first scheduler."""
        return self.schedulers[0]

    def tell(self, delta: Delta) -> None:
        """Apply a change to every scheduler."""
        for scheduler in self.schedulers:
            scheduler.apply(delta, self.now)

    def put_node(self, node: ClusterNode) -> None:
        """Add or change a node."""
        self.nodes[node.name] = node
        self.tell(NodeChanged(node))

    def drop_node(self, name: str) -> None:
        """Remove a node; its runs return to the queue."""
        del self.nodes[name]
        self.tell(NodeRemoved(name))
        for key in [key for key, running in self.running.items() if any(seat.node == name for seat in running.seats)]:
            self._stop(key)
            self._ask(self.requests[key])

    def put_queue(self, queue: Queue) -> None:
        """Define a queue."""
        self.queues[queue.name] = queue
        self.tell(QueueDefined(queue))

    def drop_queue(self, name: str) -> None:
        """Remove a queue's definition."""
        del self.queues[name]
        self.tell(QueueRemoved(name))

    def ask(self, run: str, asked: GangShape, *, lasts: float | None = None, **more: object) -> JobKey:
        """Submit a run."""
        request = GangRequest(JobKey("default", run), asked, self.now, **more)  # type: ignore[arg-type]
        self.requests[request.key] = request
        self.submitted += 1
        if lasts is not None:
            self.lasting[request.key] = lasts
        self._ask(request)
        return request.key

    def withdraw(self, key: JobKey) -> None:
        """Delete a waiting run."""
        del self.waiting[key], self.requests[key]
        self.tell(RunWithdrawn(key))

    def end(self, key: JobKey) -> None:
        """Complete a running run."""
        self._stop(key, finished=True)
        del self.requests[key]
        for scheduler in self.schedulers:
            scheduler.ledger.forget_others(self.requests.__contains__)

    def save(self, key: JobKey) -> None:
        """Let a run write a checkpoint: from now on it can resume."""
        running = self.running[key]
        request = self.requests[key] = replace(self.requests[key], resumes=True)
        self.running[key] = replace(running, saved=self.now, request=replace(running.request, resumes=request.resumes))
        self.tell(RunPlaced(self.running[key]))

    def look_on(self, *, backwards: bool = False) -> None:
        """Add a scheduler created from the first one's memory and the current state."""
        other = Scheduler(scheduler_memory.decode(self.scheduler.ledger.memory.encode()), self.policy)
        deltas: list[Delta] = [NodeChanged(node) for node in self.nodes.values()]
        deltas += [QueueDefined(queue) for queue in self.queues.values()]
        deltas += [RunWaiting(request) for request in self.waiting.values()]
        for delta in reversed(deltas) if backwards else deltas:
            other.apply(delta, self.now)
        self.schedulers.append(other)

    def decide(self) -> SchedulingDecision:
        """Decide once and carry out the decision."""
        decisions = [scheduler.decide(self.now) for scheduler in self.schedulers]
        assert all(decision == decisions[0] for decision in decisions), decisions
        decision = decisions[0]
        assert not {start.key for start in decision.starts} & {evict.key for evict in decision.evictions}, decision
        for start in decision.starts:
            self._start(start)
        for eviction in decision.evictions:
            self._evict(eviction)
        self.wake_at = decision.wake_at
        return decision

    def settle(self) -> list[SchedulingDecision]:
        """Decide until there is nothing to do; return the decisions."""
        decisions: list[SchedulingDecision] = []
        while not (decision := self.decide()).empty:
            decisions.append(decision)
            assert len(decisions) < MOST_DECISIONS, "the scheduler never settles"
        return decisions

    def next_event(self) -> float | None:
        """Return the time of the next event or requested decision."""
        while self._happens and self._turn[self._happens[0][1]] != self._happens[0][2]:
            heapq.heappop(self._happens)
        times = [self._happens[0][0]] if self._happens else []
        if self.wake_at is not None:
            times.append(self.wake_at)
        return min(times, default=None)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, process events, and decide after each."""
        end_time, decisions_at = self.now + seconds, Counter[float]()
        while (at := self.next_event()) is not None and at <= end_time:
            self._wind(max(at, self.now))
            decisions_at[self.now] += 1
            assert decisions_at[self.now] < MOST_DECISIONS, "the scheduler requests too many decisions for one moment"
            self.happen()
            self.settle()
        self._wind(end_time)

    def happen(self) -> None:
        """Process the events that are due."""
        while self._happens and self._happens[0][0] <= self.now:
            _, key, turn, what = heapq.heappop(self._happens)
            if self._turn[key] == turn and what == "end":
                self.end(key)
            elif self._turn[key] == turn:
                self._stop(key)
                self._ask(self.requests[key])

    def check(self) -> None:
        """Check that nothing is over-committed and no gang is partly placed."""
        devices: Counter[tuple[str, str]] = Counter()
        used: dict[str, Counter[str]] = {name: Counter() for name in self.nodes}
        for running in self.running.values():
            self._check_gang(running)
            for seat in running.seats:
                shape = seat.shape
                used[seat.node].update({"cpu": shape.cpu, "memory": shape.memory, **dict(shape.other)})
                devices.update({(seat.node, uuid): seat.milli for uuid in seat.devices})
        assert all(milli <= WHOLE for milli in devices.values()), devices
        for name, node in self.nodes.items():
            capacity = {"cpu": round(node.cpu * 1000), "memory": node.memory >> 20, **node.other}
            assert all(count <= capacity.get(what, 0) for what, count in used[name].items()), (name, used[name])

    def _check_gang(self, running: RunningGang) -> None:
        for part in self.requests[running.request.key].gang.parts:
            seats = [seat for seat in running.seats if seat.role == part.role]
            assert part.least <= len(seats) <= part.most
            assert sorted(seat.index for seat in seats) == list(range(len(seats)))
            assert not part.apart or len({seat.node for seat in seats}) == len(seats)
            assert not part.together or len({seat.node for seat in seats}) == 1
            for seat in seats:
                own = {device.uuid: device for device in self.nodes[seat.node].devices}
                assert len(set(seat.devices)) == part.shape.gpus, (seat, self.nodes[seat.node])
                assert all(own[uuid].type in (part.shape.gpu_types or (own[uuid].type,)) for uuid in seat.devices)

    def check_rules(self) -> None:
        """Check that no queue without borrowing exceeds its quota, and no user the limits for each user."""
        for queue in self.queues.values():
            queue_runs = [running for running in self.running.values() if running.request.queue == queue.name]
            if not queue.borrow:
                _within(resource_amount.of_seats((seat for run in queue_runs for seat in run.seats), self.nodes), queue.quota)
            for user in {running.request.user for running in queue_runs}:
                user_runs = [running for running in queue_runs if running.request.user == user]
                held = resource_amount.of_seats((seat for run in user_runs for seat in run.seats), self.nodes)
                _within({**held, "runs": len(user_runs)}, queue.per_user)

    def _start(self, start: StartDecision) -> None:
        del self.waiting[start.key]
        self.started.append((self.now, start))
        # Whatever size it starts with, it may grow again to the size of its document.
        self.running[start.key] = RunningGang(self.requests[start.key], start.seats, self.now)
        self.tell(RunPlaced(self.running[start.key]))
        self._turn[start.key] += 1
        if start.key in self.lasting:
            heapq.heappush(self._happens, (self.now + self.lasting[start.key], start.key, self._turn[start.key], "end"))

    def _evict(self, eviction: EvictDecision) -> None:
        self.evictions.append((self.now, eviction))
        key = eviction.key
        self.running[key] = replace(self.running[key], leaving=True)
        self._sizes[key] = dict(eviction.sizes)
        heapq.heappush(self._happens, (self.now + GRACE, key, self._turn[key], "leave"))

    def _ask(self, request: GangRequest) -> None:
        sizes = self._sizes.pop(request.key, {})
        limited_request = replace(request, gang=with_sizes(request.gang, sizes))
        self.waiting[request.key] = limited_request
        self.tell(RunWaiting(limited_request))

    def _stop(self, key: JobKey, *, finished: bool = False) -> None:
        running = self.running.pop(key)
        self._turn[key] += 1
        if key in self.lasting:
            worked = self.now - running.since
            self.lasting[key] -= worked if running.request.resumes else 0.0
        self.tell(RunStopped(key, self.now, finished))

    def _wind(self, until: float) -> None:
        for running in self.running.values():
            gpus = sum(len(seat.devices) * seat.milli for seat in running.seats) / WHOLE
            self.held[running.request.queue] += gpus * (until - self.now)  # type: ignore[assignment]
        self.now = until


def _within(held: dict[str, int], allowed: dict[str, int]) -> None:
    assert all(held.get(name, 0) <= count for name, count in allowed.items()), (held, allowed)
