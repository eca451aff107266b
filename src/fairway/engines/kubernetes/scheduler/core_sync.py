"""Keeps the core in step with the cluster: pods, nodes and queues in, bindings and evictions out. No I/O; level-triggered.

A decision is assumed to hold until the cluster shows it or the binding fails: meanwhile no other pod gets the place.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import GpuNode, KubernetesNode, Pod, key_of
from fairway.engines.kubernetes.scheduler import gang as scheduler_gang
from fairway.engines.kubernetes.scheduler import memory_store
from fairway.engines.kubernetes.scheduler.cluster_node import ClusterNodes
from fairway.engines.kubernetes.scheduler.equal_pod_group import EqualPodGroups
from fairway.engines.kubernetes.scheduler.faulty_unit import GANG, NODE, QUEUE, FaultyObjectsError
from fairway.engines.kubernetes.scheduler.filter.request_restriction import RequestRestriction, RestrictedRequest
from fairway.engines.kubernetes.scheduler.filter.volume_filter import ClaimBinding
from fairway.engines.kubernetes.scheduler.gang import GangPod, PodPlacement
from fairway.engines.kubernetes.scheduler.half_bound_gang import HalfBoundGangs
from fairway.plan.scheduling.decision import EvictDecision, Obstacle, StartDecision
from fairway.plan.scheduling.delta import (
    NodeChanged,
    NodeRemoved,
    QueueDefined,
    QueueRemoved,
    RunPlaced,
    RunStopped,
    RunWaiting,
    RunWithdrawn,
)
from fairway.plan.scheduling.explanation import wait_explanation
from fairway.plan.scheduling.gang import TaskSeat
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.preemption import preemption
from fairway.plan.scheduling.queueing.waiting_room import WaitingLineKey
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey, WaitReason
from fairway.state.queue import Queue

log = logging.getLogger("fairway.scheduler")

MOST_EXPLAINED = 200
"""Limit of queue lines explained at a time; those that start first come first."""
PAUSE = 5.0
"""Seconds until a gang is retried whose places turned out not to do when it got them."""


@dataclass(frozen=True, slots=True)
class GangBinding:
    """Pods of one gang to be bound, all of them."""

    key: JobKey
    pods: tuple[tuple[Pod, PodPlacement], ...]
    claims: tuple[ClaimBinding, ...] = ()
    """Claims that must get their volumes first."""


@dataclass(frozen=True, slots=True)
class GangEviction:
    """A gang to be evicted."""

    eviction: EvictDecision
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class SchedulingOutcome:
    """The result of one decision, to be carried out."""

    binds: tuple[GangBinding, ...] = ()
    rooms: tuple[GangEviction, ...] = ()
    halves: tuple[tuple[Pod, ...], ...] = ()
    """Bound pods of gangs that stay half bound: they are to be rolled back."""
    wake_at: float | None = None


@dataclass(slots=True)
class PendingDecisions:
    """Decisions that the cluster does not show yet. A rebuilt core takes them over."""

    assumed: dict[str, PodPlacement]
    leaving: set[str]
    promised: dict[str, str]
    held_until: dict[JobKey, float]


class CoreSync:
    """A core, and the state of the cluster that it has taken in.

    After an exception it may be inconsistent: build another one.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.ground = ClusterNodes()
        self.narrowing = RequestRestriction(scheduler.ledger)
        self._shapes = scheduler_gang.PodShapeCache(self.ground)
        self._gangs: dict[JobKey, dict[str, Pod]] = {}
        self._assumed: dict[str, PodPlacement] = {}
        """By the uid of the pod."""
        self._leaving: set[str] = set()
        """Uids of pods that were told to leave: it takes a moment until their objects show it."""
        self._dirty: set[JobKey] = set()
        self._queues: dict[str, Queue | None] = {}
        """Queues that changed since the last decision."""
        self._generation = 0
        self._begun = False
        self._finished: set[JobKey] = set()
        """Gangs of which a pod has succeeded since they were last examined."""
        self._narrowed: dict[JobKey, RestrictedRequest] = {}
        """Gangs whose places depend on other pods or on volumes, with the request that the core got."""
        self._families = EqualPodGroups()
        self._halves = HalfBoundGangs()
        self._paused: dict[JobKey, float] = {}
        self._held_until: dict[JobKey, float] = {}
        """Gangs that could not be bound, and when they may be retried."""
        self._retried: set[JobKey] = set()
        """Gangs whose places were taken back the last time that they got some."""
        self._seen: tuple[tuple[int, int], int] = ((0, 0), 0)
        """The versions of `narrowing` and its anti-affinity terms up to which gangs were examined."""
        self.held_back: dict[JobKey, str] = {}
        """Waiting gangs that are withheld from the core now, with their queue."""
        self.refused: dict[JobKey, str] = {}
        """Gangs that this scheduler cannot place at all, and why."""
        self.closed: dict[str, str] = {}
        """Queues that cannot be used, and why. The gangs in them wait."""

    # Changes of the cluster

    def pod(self, key: str, before: Pod | None, now: Pod | None) -> None:
        """Take in that a pod was added, changed or removed."""
        latest = now or before
        assert latest is not None
        if latest.spec.scheduler_name != annotation.SCHEDULER:
            self.ground.see_stranger(key, now)
            self._lies(key, now, now.spec.node_name if now is not None else "")
            return
        gang = scheduler_gang.key_of_gang(latest)
        members = self._gangs.setdefault(gang, {})
        if now is None or now.over or _gets_no_place(now):
            members.pop(key, None)
            self._assumed.pop(latest.metadata.uid, None)
            self._leaving.discard(latest.metadata.uid)
            self._shapes.forget(latest.metadata.uid)
            self._lies(key, None, "")
            if latest.status.phase == "Succeeded":
                self._finished.add(gang)
        else:
            members[key] = now
            assumed = self._assumed.get(now.metadata.uid)
            if now.spec.node_name:
                self._assumed.pop(now.metadata.uid, None)
                self._lies(key, now, now.spec.node_name)
            elif assumed is not None:
                self._lies(key, now, assumed.node)
        self._dirty.add(gang)

    def _lies(self, key: str, pod: Pod | None, node: str) -> None:
        if pod is not None and node and not pod.over:
            self.narrowing.put(pod, node)
        else:
            self.narrowing.drop(key)

    def node(self, key: str, before: KubernetesNode | None, now: KubernetesNode | None) -> None:
        """Take in that a node was added, changed or removed."""
        if before is not None and now is not None and _alike(before, now):
            return  # A heartbeat.
        self.ground.see(key, now)
        self.narrowing.company.node(key, now)

    def gpu_node(self, key: str, _before: GpuNode | None, now: GpuNode | None) -> None:
        """Take in what an agent reports of its node's GPUs."""
        self.ground.see_gpus(key, now)

    def queue(self, name: str, described: Queue | None) -> None:
        """Set the description of a queue; None removes it."""
        self._queues[name] = described

    def failed(self, pods: Sequence[Pod]) -> None:
        """Release the places of pods whose bindings were given up."""
        for pod in pods:
            if self._assumed.pop(pod.metadata.uid, None) is not None:
                self.narrowing.drop(key_of(pod))
            self._dirty.add(scheduler_gang.key_of_gang(pod))

    def hold_until(self, key: JobKey, until: float) -> None:
        """Do not start this gang before that time."""
        self._held_until[key] = until
        self._dirty.add(key)

    def close(self, queue: str, cause: str) -> None:
        """Make the gangs of a queue wait: the queue cannot be used."""
        self.closed[queue] = cause

    def open(self, queue: str) -> None:
        """Make a queue usable again."""
        if self.closed.pop(queue, None) is not None:
            self._dirty |= {key for key, name in self.held_back.items() if name == queue}

    def assumed(self, pod: Pod) -> PodPlacement | None:
        """Return the place that a pod is assumed to have until its binding shows."""
        return self._assumed.get(pod.metadata.uid)

    def pending(self) -> PendingDecisions:
        """Return the decisions that the cluster does not show yet."""
        return PendingDecisions(
            dict(self._assumed), set(self._leaving), dict(self.narrowing.storage.promised), dict(self._held_until)
        )

    def resume(self, pending: PendingDecisions) -> None:
        """Take over the decisions of another core. Call it before pods are passed in."""
        self._assumed, self._leaving = dict(pending.assumed), set(pending.leaving)
        self.narrowing.storage.promised.update(pending.promised)
        self._held_until.update(pending.held_until)

    def forget(self, now: float) -> None:
        """Drop what the core remembers of runs that have left and are not expected back."""
        memory_store.forget(self.scheduler.ledger, self._gangs.keys(), now)

    def stays(self, pods: Sequence[Pod]) -> None:
        """Take in that these pods could not be evicted: the core may choose other victims."""
        for pod in pods:
            self._leaving.discard(pod.metadata.uid)
            self._dirty.add(scheduler_gang.key_of_gang(pod))

    # Decisions

    def decide(self, now: float) -> SchedulingOutcome:
        """Pass all changes to the core, let it decide, and assume what it decides.

        `FaultyObjectsError` names the objects for which that failed.
        """
        broken = FaultyObjectsError()
        self._tell_places(now, broken)
        if self.ground.generation != self._generation:
            self._generation = self.ground.generation
            self._dirty |= set(self.scheduler.ledger.room.keys())
        self._look_again(now)
        while self._dirty:
            dirty, self._dirty = sorted(self._dirty), set()
            for key in dirty:
                with broken.noting(GANG, key):
                    self._tell_gang(key, now)
        broken.check()
        if not self._begun:
            memory_store.drop_stale(self.scheduler.ledger)
            self._begun = True
        self._finished.clear()
        self._tell_places(now, broken)  # Gangs may have brought host ports that no node had so far.
        broken.check()
        decision = self.scheduler.decide(now)
        binds = self._starts(decision.starts, now)
        rooms = tuple(
            GangEviction(eviction, tuple(self._gangs.get(eviction.key, {}).values())) for eviction in decision.evictions
        )
        self._leaving.update(pod.metadata.uid for room in rooms for pod in room.pods)
        return SchedulingOutcome(tuple(binds), rooms, tuple(self._halves.overdue(now)), self._wake(decision.wake_at, now))

    def _starts(self, starts: Sequence[StartDecision], now: float) -> list[GangBinding]:
        broken, binds = FaultyObjectsError(), []
        for start in starts:
            with broken.noting(GANG, start.key):
                bind = self._start(start, now)
                if bind is not None:
                    binds.append(bind)
        broken.check()
        return binds

    def _look_again(self, now: float) -> None:
        """Mark gangs to be examined again: those whose places depend on other pods, whenever those have changed."""
        company, ledger = self.narrowing.company, self.scheduler.ledger
        for waiting in (self._paused, self._held_until):
            for key in [key for key, until in waiting.items() if until <= now]:
                del waiting[key]
                self._dirty.add(key)
        version, terms = self._seen
        if company.terms != terms:
            self._dirty |= set(ledger.room.keys())
        others_moved = self.narrowing.version != version
        for key, narrowed in self._narrowed.items():
            # Places chosen here are valid only now: another pod may have taken or left some since.
            if narrowed.parts or narrowed.request is None or (others_moved and self._families.leads(key)):
                self._dirty.add(key)
        self._seen = (self.narrowing.version, company.terms)

    def _wake(self, at: float | None, now: float) -> float | None:
        """Return when to decide next: at once when the next pod of a group has its turn."""
        again = [*self._paused.values(), *self._held_until.values()]
        half = self._halves.next()
        if half is not None:
            again.append(half)
        if self._dirty and self._families.waiting:
            again.append(now)
        return min([*again, *([at] if at is not None else [])], default=None)

    def _tell_places(self, now: float, broken: FaultyObjectsError) -> None:
        for name, described in self._queues.items():
            with broken.noting(QUEUE, name):
                self._tell_queue(name, described, now)
        self._queues.clear()
        for name in sorted(self.ground.changed):
            with broken.noting(NODE, name):
                self._tell_node(name, now)
        self.ground.changed.clear()

    def _tell_queue(self, name: str, described: Queue | None, now: float) -> None:
        if described is not None:
            self.scheduler.apply(QueueDefined(described), now)
        elif name in self.scheduler.ledger.queues:
            self.scheduler.apply(QueueRemoved(name), now)

    def _tell_node(self, name: str, now: float) -> None:
        value, nodes = self.ground.node(name), self.scheduler.ledger.nodes
        if value is None and name in nodes:
            self.scheduler.apply(NodeRemoved(name), now)
        elif value is not None and nodes.get(name) != value:
            self.scheduler.apply(NodeChanged(value), now)

    def members(self, key: JobKey) -> list[GangPod]:
        """Return the pods of a gang that have not finished."""
        pods = self._gangs.get(key, {})
        return [scheduler_gang.member_of(pod, self._assumed.get(pod.metadata.uid)) for pod in pods.values()]

    def _tell_gang(self, key: JobKey, now: float) -> None:
        ledger = self.scheduler.ledger
        members = self.members(key)
        self._halves.look(key, members, now)
        if not members:
            self._gangs.pop(key, None)
            self._paused.pop(key, None)
        wrong = scheduler_gang.problem(members)
        self._note_refusal(key, wrong)
        before = ledger.running.get(key)
        since = before.since if before is not None else now
        running = scheduler_gang.running_of(key, members, self._shapes, since, self._leaving) if not wrong else None
        if running is None and before is not None:
            self.scheduler.apply(RunStopped(key, now, key in self._finished), now)
        elif running is not None and running != before:
            self.scheduler.apply(RunPlaced(running), now)
        request = scheduler_gang.request_of(key, members, self._shapes) if not wrong else None
        request = self._narrow(key, request, members)
        if request is not None:
            if ledger.room.get(key) != request:
                self.scheduler.apply(RunWaiting(request), now)
        elif key in ledger.room:
            self.scheduler.apply(RunWithdrawn(key), now)

    def _narrow(self, key: JobKey, asks: GangRequest | None, members: Sequence[GangPod]) -> GangRequest | None:
        """Return the request for the core, adapted where it depends on other pods or volumes; None to withhold it for now."""
        waiting = scheduler_gang.startable(members) if asks is not None else []
        self.held_back.pop(key, None)
        if asks is not None and (asks.queue in self.closed or key in self._held_until):
            self.held_back[key] = asks.queue
            self._narrowed.pop(key, None)
            self._dirty.update(self._families.leave(key))
            return None
        if asks is None or not any(self.narrowing.concerns(member.pod) for member in waiting):
            self._narrowed.pop(key, None)
            self._dirty.update(self._families.leave(key))
            return asks
        self.held_back[key] = asks.queue
        if key in self._paused:
            return None
        if len(waiting) == 1 and not self._families.join(key, asks, waiting[0].pod):
            self._narrowed.pop(key, None)
            return None
        narrowed = self._narrowed[key] = self.narrowing.narrowed(asks, waiting)
        if narrowed.request is not None:
            del self.held_back[key]
        return narrowed.request

    def _note_refusal(self, key: JobKey, wrong: str) -> None:
        if wrong:
            self.refused[key] = wrong
        else:
            self.refused.pop(key, None)

    def _start(self, start: StartDecision, now: float) -> GangBinding | None:
        """Assign the seats to the waiting pods, in order. Return None when a gang of the same decision is in the way."""
        seats_by_role: dict[str, list[TaskSeat]] = {}
        for seat in sorted(start.seats, key=lambda seat: seat.index):
            seats_by_role.setdefault(seat.role, []).append(seat)
        narrowed = self._narrowed.get(start.key)
        parts = narrowed.parts if narrowed is not None else {}
        placed = []
        for member in scheduler_gang.startable(self.members(start.key)):
            seat = seats_by_role[parts.get(member.pod.metadata.uid, member.role)].pop(0)
            placed.append((member.pod, scheduler_gang.place_of(seat, self.scheduler.ledger.nodes)))
        # Pass the gang to the core again: what the core holds of it must equal what its pods will show.
        self._dirty.add(start.key)
        if not self.narrowing.seat([(pod, place.node) for pod, place in placed]):
            self._take_back(start.key, now)
            return None
        self._retried.discard(start.key)
        self._assumed.update((pod.metadata.uid, place) for pod, place in placed)
        return GangBinding(start.key, tuple(placed), self._claims(placed) if narrowed is not None else ())

    def _claims(self, given: Sequence[tuple[Pod, PodPlacement]]) -> tuple[ClaimBinding, ...]:
        nodes, storage = self.narrowing.company.nodes, self.narrowing.storage
        return tuple(claim for pod, place in given for claim in storage.to_bind(pod, nodes[place.node]))

    def _take_back(self, key: JobKey, now: float) -> None:
        """Undo a start as if it had never happened."""
        remembered, name = self.scheduler.ledger.memory, str(key)
        ran, left = remembered.ran.get(name), remembered.left.get(name)
        self.scheduler.apply(RunStopped(key, now), now)
        del remembered.ran[name], remembered.left[name]
        if ran is not None:
            remembered.ran[name] = ran
        if left is not None:
            remembered.left[name] = left
        self._paused[key] = now + PAUSE if key in self._retried else now
        self._retried.symmetric_difference_update({key})

    # Explanations

    def holds(self, now: float, silent: Collection[JobKey] = ()) -> dict[JobKey, WaitReason]:
        """Return why gangs wait: those of the first lines, up to the limit, except lines headed by a gang of `silent`.

        `FaultyObjectsError` names the gangs for which the explanation fails.
        """
        ledger, broken = self.scheduler.ledger, FaultyObjectsError()
        lines = sorted(ledger.room.lines(), key=lambda line: line.rank())[:MOST_EXPLAINED]
        heads = [head for line in lines if (head := line.first()) is not None and head.key not in silent]
        found, spared = self._obstacles(heads, now)
        holds_by_key: dict[JobKey, WaitReason] = {}
        for line in lines:
            head, obstacle = line.first(), found.get(line.key)
            if head is None or obstacle is None:
                continue
            with broken.noting(GANG, head.key):
                hold = self.ground.with_plugins(wait_explanation.hold(head, obstacle, ledger.nodes, spared.get(head.key, ())))
                holds_by_key |= {request.key: self._in_words(request.key, hold) for request in line.in_order()}
        broken.check()
        holds_by_key |= {key: self._in_words(key, None) for key, found in self._narrowed.items() if found.request is None}
        holds_by_key |= {key: holds_by_key[first] for key, first in self._families.followers() if first in holds_by_key}
        holds_by_key |= {key: _closed(name, self.closed[name]) for key, name in self.held_back.items() if name in self.closed}
        return holds_by_key | {key: WaitReason("unsupported", words) for key, words in self.refused.items()}

    def _obstacles(
        self, heads: Sequence[GangRequest], now: float
    ) -> tuple[dict[WaitingLineKey, Obstacle], dict[JobKey, list[JobKey]]]:
        ledger = self.scheduler.ledger
        try:
            return wait_explanation.obstacles(ledger, heads, now), preemption.sparing(ledger, heads, now)
        except Exception:
            broken = FaultyObjectsError()
            for head in heads:
                with broken.noting(GANG, head.key):
                    wait_explanation.obstacles(ledger, [head], now)
                    preemption.sparing(ledger, [head], now)
            broken.check()
            raise

    def _in_words(self, key: JobKey, hold: WaitReason | None) -> WaitReason:
        """Complete the core's reason, which mentions only node names: add why other nodes were ruled out."""
        narrowed = self._narrowed.get(key)
        if hold is not None and (narrowed is None or hold.reason != "placement" or not narrowed.words):
            return hold
        words = narrowed.words if narrowed is not None else ""
        return WaitReason("placement", f"no node fits: {words}", "it goes on by itself when that changes")


def _closed(queue: str, cause: str) -> WaitReason:
    return WaitReason("fault", f"its queue {queue} cannot be used: {cause}", "it goes on by itself when the queue works again")


def _gets_no_place(pod: Pod) -> bool:
    """Return whether the pod was deleted before it was bound: it cannot be bound then, however long a finalizer keeps it."""
    return pod.metadata.deletion_timestamp is not None and not pod.spec.node_name


def _alike(before: KubernetesNode, now: KubernetesNode) -> bool:
    """Return whether nothing changed that matters for placement."""
    same_state = [(condition.type, condition.status) for condition in before.status.conditions] == [
        (condition.type, condition.status) for condition in now.status.conditions
    ]
    return (
        same_state
        and before.spec == now.spec
        and before.metadata.labels == now.metadata.labels
        and before.status.allocatable == now.status.allocatable
        and before.status.capacity == now.status.capacity
    )
