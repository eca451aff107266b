"""The scheduler's state: nodes, queues, waiting and running gangs. Deltas change it; decisions are made elsewhere.

Everything that must outlive the process is in `memory`; the rest is current state, restored by deltas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

from fairway.plan.scheduling import resource_amount
from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.cluster.running_index import RunningGangIndex, weight_of
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
from fairway.plan.scheduling.device_release import DeviceReleaseForecast, is_alike
from fairway.plan.scheduling.forecast import duration_estimate
from fairway.plan.scheduling.gang import WHOLE, CapacityShortfall, GangShape, TaskSeat, sizes_beside
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.scheduling.placement.mix_learner import WorkloadMixLearner
from fairway.plan.scheduling.queueing import time_slice as queueing_time_slice
from fairway.plan.scheduling.queueing.time_slice_rotation import CheckTimer, TimeSliceRotation
from fairway.plan.scheduling.queueing.usage_account import UsageAccounts
from fairway.plan.scheduling.queueing.waiting_room import WaitingLineKey, WaitingRoom
from fairway.plan.scheduling.reservation_index import ReservationIndex
from fairway.plan.scheduling.resource_amount import Amounts
from fairway.plan.scheduling.scheduler_memory import SchedulerMemory, SeatReservation
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode
from fairway.state.queue import Queue


class SchedulerState:
    """Nodes, queues, waiting and running gangs, kept consistent with each other."""

    def __init__(self, memory: SchedulerMemory, policy: str = "fairway") -> None:
        self.memory = memory
        self.cluster = ClusterModel(policy=policy, mix=memory.mix)
        self.nodes: dict[str, ClusterNode] = {}
        self.queues: dict[str, Queue] = {}
        self.room = WaitingRoom()
        self.running: dict[JobKey, RunningGang] = {}
        self.roster = RunningGangIndex()
        self.promises = ReservationIndex(self.nodes)
        self.outlook = DeviceReleaseForecast(self.nodes)
        self.rotation = TimeSliceRotation()
        self.accounts = UsageAccounts(memory.usage)
        self._lessons = WorkloadMixLearner(memory)
        self.freed = 0
        """Incremented when places are freed or a queue's rules change."""
        self.freed_nodes: set[str] = set()
        """Nodes on which places were freed; the reader takes and empties the set."""
        self.changes = 0
        """Incremented when anything on the nodes changes."""
        self.hoping = 0
        """Incremented when a reservation is made or released, or a run with a reservation changes its line."""
        self.held_back: list[TaskSeat] | None = None
        """Seats of released reservations that are not free yet; None: released seats are free at once."""
        self._climbing = CheckTimer()
        """Waiting runs of time-sliced queues, by when their rank changes through time alone."""
        for running, taken in memory.sitting.values():
            # Their places are taken in the cluster when their nodes are added.
            self.running[running.request.key] = running
            self.roster.add(running, taken)
            self.promises.sit(running.request.key, running.seats)
            self.accounts.hold(running.request.queue, running.request.user, taken, None)
        for name, kept in memory.reservations.items():
            self.promises.keep(name, kept.seats)

    def apply(self, delta: Delta, now: float) -> None:
        """Apply one change."""
        match delta:
            case NodeChanged(node):
                self._see(node)
            case NodeRemoved(name):
                self._lose(name)
            case QueueDefined(queue):
                self._describe(queue, now)
            case QueueRemoved(name):
                self._describe(Queue(name), now)
                del self.queues[name]
            case RunWaiting(request):
                self._ask(request, now)
            case RunWithdrawn(key):
                self.withdraw(key)
            case RunPlaced(running):
                self.sit(running, now)
            case RunStopped():
                self._leave(delta, now)

    def queue(self, name: str) -> Queue:
        """Return the queue of that name; a default one when it is not defined."""
        return self.queues.get(name) or Queue(name)

    def served(self, key: JobKey, now: float) -> float:
        """Return the GPU-seconds (core-seconds without GPUs) that the run has received in total."""
        earlier = self.memory.ran.get(str(key), (0.0, 0.0))[1]
        running = self.running.get(key)
        return earlier + (max(0.0, now - running.since) * weight_of(running.request.gang) if running is not None else 0.0)

    def expected_end(self, running: RunningGang, now: float) -> float:
        """Return the expected end of a run. For an overdue run it is postponed further and further."""
        end = self.memory.ends.get(str(running.request.key), now)
        return end if end > now else now + max(60.0, 0.25 * (now - running.since))

    def longest(self, request: GangRequest) -> float | None:
        """Return an upper bound of the run's remaining duration; None when no estimate has enough confidence."""
        estimate = self._estimate(request)
        return estimate.high if estimate.confidence >= duration_estimate.CONFIDENT else None

    def _estimate(self, request: GangRequest) -> duration_estimate.DurationEstimate:
        ran = self.memory.ran.get(str(request.key), (0.0, 0.0))[0]
        gpus = request.gang.gpus / WHOLE
        return duration_estimate.estimate(self.memory.history, request.user, request.name, gpus, request.limit, ran)

    def active(self) -> list[Queue]:
        """Return the queues with waiting or running gangs, sorted by name."""
        return [self.queue(name) for name in sorted(self.roster.queues() | self.room.queues())]

    def taken(self, key: JobKey) -> Amounts:
        """Return what a running gang holds."""
        return self.memory.sitting[str(key)][1]

    def line_key(self, request: GangRequest, now: float) -> WaitingLineKey:
        """Return the key of the line to which a request belongs."""
        queue = self.queue(request.queue)
        level = queueing_time_slice.level_of(self.standing(request, now), now) if queue.time_slice else 0
        placed_run = request.key if request.key in self.running else None
        user = request.user if queue.per_user else ""
        return WaitingLineKey(request.queue, request.gang, user, request.priority, level, placed_run, bool(request.service))

    def standing(self, request: GangRequest, now: float) -> queueing_time_slice.TimeSliceStanding:
        """Return the run's standing for the time-slice rule."""
        running = self.running.get(request.key)
        since = running.since if running is not None else None
        waiting_since = self.memory.left.get(str(request.key), request.submitted)
        served = self.served(request.key, now)
        return queueing_time_slice.TimeSliceStanding(
            request.key, weight_of(request.gang), served, request.submitted, since, waiting_since
        )

    def take_turns(self, now: float) -> float | None:
        """Update the levels of waiting runs and the ends of time slices; return when the next update is due."""
        for key in self._climbing.due(now):
            request = self.room.get(key)
            if request is not None:
                self._stand(request, now)
        for key in self.rotation.looks.due(now):
            self._watch(key, now)
        times = [self._climbing.next(), self.rotation.looks.next() if self.room else None]
        return min((time for time in times if time is not None), default=None)

    def sit(self, running: RunningGang, now: float, *, placed: bool = False) -> None:
        """Record that a gang holds its seats; `placed`: they are already taken in the cluster."""
        key = running.request.key
        before = self.running.get(key)
        if before is not None and _is_as_before(running, before):
            self._know(running, self.taken(key))
            self._watch(key, now)
            return
        if before is not None:
            self.stand_up(before, now)
        if not placed:
            self.cluster.take(running.seats)
        self.changes += 1
        taken = resource_amount.of_seats(running.seats, self.nodes)
        self._know(running, taken)
        self.promises.sit(key, running.seats)
        self.accounts.hold(running.request.queue, running.request.user, taken, now)
        self.memory.ends[str(key)] = running.since + self._estimate(running.request).median
        self._watch(key, now)
        self._stand_again(key, now)

    def look_out(self) -> DeviceReleaseForecast:
        """Return when devices are expected to be free, updated to the current state."""
        for name in self.outlook.stale():
            sitters = self.promises.sitters.get(name, {})
            node_sitters = [(self._end_of(key), self.running[key].since, tuple(seats)) for key, seats in sitters.items()]
            self.outlook.set_node(name, node_sitters, self.promises.kept_on(name))
        return self.outlook

    def _end_of(self, key: JobKey) -> float:
        return 0.0 if self.running[key].leaving else self.memory.ends.get(str(key), 0.0)

    def extend(self, key: JobKey, seats: tuple[TaskSeat, ...], now: float) -> None:
        """Add seats that are already taken in the cluster to a running gang."""
        running, request = self.running[key], self.running[key].request
        self.accounts.release(request.queue, request.user, self.taken(key), now)
        taken = dict(self.taken(key))
        resource_amount.add(taken, resource_amount.of_seats(seats, self.nodes))
        self._know(replace(running, seats=(*running.seats, *seats)), taken)
        self.accounts.hold(request.queue, request.user, taken, now)
        self.promises.sit(key, seats)
        self.changes += 1

    def _know(self, running: RunningGang, taken: Amounts) -> None:
        before = self.running.get(running.request.key)
        if before is not None:
            self.roster.remove(before, self.taken(running.request.key))
        self.roster.add(running, taken)
        self.outlook.touch(seat.node for seat in running.seats)
        self.running[running.request.key] = running
        self.memory.sitting[str(running.request.key)] = (running, taken)

    def _watch(self, key: JobKey, now: float) -> None:
        running = self.running.get(key)
        time_slice = self.queue(running.request.queue).time_slice if running is not None else None
        if running is not None and time_slice and running.request.resumes and not running.leaving:
            self.rotation.watch(running.request.queue, time_slice, self.standing(running.request, now), now)
        else:
            self.rotation.forget(key)

    def mark_leaving(self, key: JobKey) -> None:
        """Mark a gang as evicted; it holds its places until it has ended."""
        self._know(replace(self.running[key], leaving=True), self.taken(key))
        self.rotation.forget(key)

    def withdraw(self, key: JobKey) -> None:
        """Remove a gang from the waiting room and release its reservation."""
        self.room.remove(key)
        self._climbing.put(key, None)
        self.memory.hopeless.pop(str(key), None)
        self.unreserve(key)

    def find_places(self, gang: GangShape, beside: Sequence[TaskSeat] = ()) -> tuple[TaskSeat, ...] | CapacityShortfall:
        """Take and return places for the gang's minimum, in addition to the tasks placed already (`beside`)."""
        return self.cluster.place(gang, sizes_beside(gang, beside), beside)

    def places_for(self, request: GangRequest) -> tuple[TaskSeat, ...] | CapacityShortfall:
        """Take and return places for a waiting run, in addition to its tasks that are placed already."""
        running = self.running.get(request.key)
        return self.find_places(request.gang, running.seats if running is not None else ())

    def try_places(self, gang: GangShape, beside: Sequence[TaskSeat] = ()) -> tuple[TaskSeat, ...] | None:
        """Like `find_places`, but return None instead of a reason."""
        if any(self.cluster.room(part.shape) < part.least for part in gang.parts):
            return None
        return self.cluster.try_place(gang, sizes_beside(gang, beside), beside)

    def would_fit(self, request: GangRequest) -> tuple[TaskSeat, ...] | None:
        """Return the places that the run would get now, without taking them."""
        running = self.running.get(request.key)
        mark = self.cluster.mark()
        seats = self.try_places(request.gang, running.seats if running is not None else ())
        self.cluster.undo(mark)
        return seats

    def reserve(self, key: JobKey, reservation: SeatReservation) -> None:
        """Reserve places for a gang; a previous reservation is released."""
        self.unreserve(key)
        self.memory.reservations[str(key)] = reservation
        self.promises.keep(str(key), reservation.seats)
        self.outlook.touch(seat.node for seat in reservation.seats)
        self.cluster.take(reservation.seats)
        self.changes += 1
        self.hoping += 1
        self._unsettle(key)

    def unreserve(self, key: JobKey) -> None:
        """Release a gang's reservation."""
        reservation = self.memory.reservations.pop(str(key), None)
        if reservation is not None:
            self.promises.drop(str(key), reservation.seats)
            self.outlook.touch(seat.node for seat in reservation.seats)
            if self.held_back is None:
                self.cluster.give(reservation.seats)
            else:
                self.held_back += reservation.seats
            self._free(seat.node for seat in reservation.seats)
            self.hoping += 1
            self._unsettle(key)

    @contextmanager
    def holding_back(self) -> Iterator[None]:
        """Keep the seats of released reservations taken until the end of the block, so that later lines cannot get them first."""
        self.held_back = []
        yield
        self.cluster.give(self.held_back)
        self.held_back = None

    def _unsettle(self, key: JobKey) -> None:
        request = self.room.get(key)
        if request is not None:
            self.room.unsettled.add(request.queue)

    def _free(self, nodes: Iterable[str]) -> None:
        self.freed += 1
        self.changes += 1
        self.freed_nodes.update(nodes)

    def _see(self, node: ClusterNode) -> None:
        if self.nodes.get(node.name) == node:
            return
        previous = self.nodes.get(node.name)
        if previous is not None:
            resource_amount.add(self.accounts.totals, resource_amount.of_nodes([previous]), -1)
        resource_amount.add(self.accounts.totals, resource_amount.of_nodes([node]))
        self.nodes[node.name] = node
        self.cluster.put_node(node)
        if previous is None:
            # The node may have been away for a while; its running tasks and reservations are still valid.
            running_seats = [seat for seats in self.promises.sitters.get(node.name, {}).values() for seat in seats]
            self.cluster.take([*running_seats, *self.promises.kept_on(node.name)])
        self.promises.look_at(node.name)
        if previous is None or not is_alike(previous, node):
            self.outlook.renew()
        self.outlook.touch([node.name])
        self._free([node.name])

    def _lose(self, name: str) -> None:
        if name in self.nodes:
            resource_amount.add(self.accounts.totals, resource_amount.of_nodes([self.nodes.pop(name)]), -1)
            self.cluster.drop_node(name)
            broken = [
                run_name for run_name, kept in self.memory.reservations.items() if any(seat.node == name for seat in kept.seats)
            ]
            for run_name in broken:
                self.unreserve(key_of(run_name))
            self.promises.look_at(name)
            self.outlook.renew()
            self._free(())

    def _describe(self, queue: Queue, now: float) -> None:
        self.queues[queue.name] = queue
        for request in self.room.requests(queue.name):
            self._stand(request, now)
        for key in self.roster.of_queue(queue.name):
            self._watch(key, now)
        self.room.refresh(queue.name)
        self._free(())

    def _ask(self, request: GangRequest, now: float) -> None:
        before = self.room.get(request.key)
        if before is not None and before.gang != request.gang:
            self.memory.hopeless.pop(str(request.key), None)
            self.unreserve(request.key)
        self._stand(request, now)

    def _stand(self, request: GangRequest, now: float) -> None:
        self.room.add(request, self.line_key(request, now))
        if str(request.key) in self.memory.reservations:
            self.hoping += 1
        rotates = self.queue(request.queue).time_slice
        self._climbing.put(request.key, queueing_time_slice.next_look(self.standing(request, now), now) if rotates else None)

    def _stand_again(self, key: JobKey, now: float) -> None:
        request = self.room.get(key)
        if request is not None:
            self._stand(request, now)

    def _leave(self, left: RunStopped, now: float) -> None:
        running = self.running.get(left.key)
        if running is None:
            return
        name = str(left.key)
        self.stand_up(running, now)
        seconds, served = self.memory.ran.get(name, (0.0, 0.0))
        lasted = max(0.0, left.at - running.since)
        seconds, served = seconds + lasted, served + lasted * weight_of(running.request.gang)
        self.memory.ran[name] = (seconds, served)
        if left.finished:
            request = running.request
            gpus = request.gang.gpus / WHOLE
            self.memory.history = duration_estimate.record(self.memory.history, request.user, request.name, gpus, seconds)
        self.memory.left[name] = left.at
        self._stand_again(left.key, now)

    def forget_others(self, may_return: Callable[[JobKey], bool]) -> None:
        """Forget the past service of runs that cannot return to the queue."""
        for name in [name for name in self.memory.ran if not may_return(key_of(name))]:
            del self.memory.ran[name]
            self.memory.left.pop(name, None)

    def stand_up(self, running: RunningGang, now: float) -> None:
        """Record that a gang holds nothing any more."""
        key = running.request.key
        self.cluster.give(running.seats)
        self.promises.sit(key, running.seats, -1)
        self.outlook.touch(seat.node for seat in running.seats)
        self.accounts.release(running.request.queue, running.request.user, self.taken(key), now)
        self.roster.remove(running, self.taken(key))
        self.rotation.forget(key)
        del self.running[key]
        del self.memory.sitting[str(key)]
        self.memory.ends.pop(str(key), None)
        self._free(seat.node for seat in running.seats)

    def learn(self, seats: Sequence[TaskSeat]) -> None:
        """Count started tasks for the workload mix."""
        mix = self._lessons.count(seats)
        if mix is not None:
            self.cluster.learn(mix)
            self._free(self.nodes)


@lru_cache(maxsize=1 << 16)
def key_of(name: str) -> JobKey:
    """Return the key of a run from its name, `namespace/name`."""
    namespace, _, own = name.partition("/")
    return JobKey(namespace, own)


def _is_as_before(running: RunningGang, before: RunningGang) -> bool:
    """Return whether both hold the same seats, as multisets, for the same queue and user.

    Two tasks may have equal seats: a restarted one and its predecessor, which has not ended yet.
    """
    if (running.request.queue, running.request.user) != (before.request.queue, before.request.user):
        return False
    return running.seats == before.seats or Counter(running.seats) == Counter(before.seats)
