"""The core in step with the cluster: pods, nodes and queues in, bindings and evictions out. No I/O; level-triggered.

What was decided is assumed until the cluster shows it or the binding fails: between the two nobody else gets the place.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.objects import GpuNode, Node, Pod, key_of
from fairway.engines.kubernetes.scheduler import gangs, memory
from fairway.engines.kubernetes.scheduler.broken import GANG, NODE, QUEUE, BrokenError
from fairway.engines.kubernetes.scheduler.families import Families
from fairway.engines.kubernetes.scheduler.gangs import Member, Place
from fairway.engines.kubernetes.scheduler.ground import Ground
from fairway.engines.kubernetes.scheduler.halves import Halves
from fairway.engines.kubernetes.scheduler.narrowing import Narrowed, Narrowing
from fairway.engines.kubernetes.scheduler.storage import ToBind
from fairway.plan.scheduling import explain, preempt
from fairway.plan.scheduling.decision import Evict, Obstacle, Start
from fairway.plan.scheduling.delta import Asked, Left, NodeGone, NodeSeen, QueueGone, QueueSet, Sits, Withdrawn
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.shape import Seat
from fairway.plan.scheduling.waiting import LineKey
from fairway.state.job import Hold, JobKey
from fairway.state.queue import Queue

log = logging.getLogger("fairway.scheduler")

MOST_EXPLAINED = 200
"""So many lines of waiting gangs are told why at a time, those first that start first."""
PAUSE = 5.0
"""Seconds until a gang is looked at again whose places would not do when it got them."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Pods of one gang to be bound, all of them."""

    key: JobKey
    pods: tuple[tuple[Pod, Place], ...]
    claims: tuple[ToBind, ...] = ()
    """What must have its volume first."""


@dataclass(frozen=True, slots=True)
class Room:
    """A gang that must make room."""

    eviction: Evict
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One decision, to be carried out."""

    binds: tuple[Bind, ...] = ()
    rooms: tuple[Room, ...] = ()
    halves: tuple[tuple[Pod, ...], ...] = ()
    """Bound pods of gangs that stay half: they are taken back."""
    wake_at: float | None = None


@dataclass(slots=True)
class Pending:
    """What was decided and is not seen on the cluster yet: a core that is made anew takes it over."""

    assumed: dict[str, Place]
    leaving: set[str]
    promised: dict[str, str]
    held_until: dict[JobKey, float]


class Follower:
    """A core, and how far it has followed the cluster.

    After an exception it may be inconsistent: make another one.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.ground = Ground()
        self.narrowing = Narrowing(scheduler.ledger)
        self._shapes = gangs.Shapes(self.ground)
        self._gangs: dict[JobKey, dict[str, Pod]] = {}
        self._assumed: dict[str, Place] = {}
        """By the uid of the pod."""
        self._leaving: set[str] = set()
        """Uids of pods that were asked to go: it takes a moment until that is seen on them."""
        self._dirty: set[JobKey] = set()
        self._queues: dict[str, Queue | None] = {}
        """Those that changed since the last decision."""
        self._generation = 0
        self._begun = False
        self._finished: set[JobKey] = set()
        """Gangs of which a pod has ended well since they were looked at last."""
        self._narrowed: dict[JobKey, Narrowed] = {}
        """Gangs whose places depend on other pods or on volumes, and what the core was asked for."""
        self._families = Families()
        self._halves = Halves()
        self._paused: dict[JobKey, float] = {}
        self._held_until: dict[JobKey, float] = {}
        """Gangs that could not be bound, and when they may be tried again."""
        self._retried: set[JobKey] = set()
        """Gangs whose places were taken back the last time that they got some."""
        self._seen: tuple[tuple[int, int], int] = ((0, 0), 0)
        """Up to which changes of others gangs were looked at."""
        self.held_back: dict[JobKey, str] = {}
        """Gangs that wait and of which the core does not know now, by their queue."""
        self.refused: dict[JobKey, str] = {}
        """Gangs that can have no place from this scheduler, and why."""
        self.closed: dict[str, str] = {}
        """Queues that cannot be used, and why: what is in them waits."""

    # The cluster changes

    def pod(self, key: str, before: Pod | None, now: Pod | None) -> None:
        """A pod came, changed or went."""
        known = now or before
        assert known is not None
        if known.spec.scheduler_name != marks.SCHEDULER:
            self.ground.see_stranger(key, now)
            self._lies(key, now, now.spec.node_name if now is not None else "")
            return
        gang = gangs.key_of_gang(known)
        own = self._gangs.setdefault(gang, {})
        if now is None or now.over or _gets_no_place(now):
            own.pop(key, None)
            self._assumed.pop(known.metadata.uid, None)
            self._leaving.discard(known.metadata.uid)
            self._shapes.forget(known.metadata.uid)
            self._lies(key, None, "")
            if known.status.phase == "Succeeded":
                self._finished.add(gang)
        else:
            own[key] = now
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

    def node(self, key: str, before: Node | None, now: Node | None) -> None:
        """A node came, changed or went."""
        if before is not None and now is not None and _alike(before, now):
            return  # A heartbeat.
        self.ground.see(key, now)
        self.narrowing.company.node(key, now)

    def gpu_node(self, key: str, _before: GpuNode | None, now: GpuNode | None) -> None:
        """What an agent says of its node's GPUs."""
        self.ground.see_gpus(key, now)

    def queue(self, name: str, described: Queue | None) -> None:
        """A queue is described anew, or no longer."""
        self._queues[name] = described

    def failed(self, pods: Sequence[Pod]) -> None:
        """Bindings of these pods were given up: their places are free again."""
        for pod in pods:
            if self._assumed.pop(pod.metadata.uid, None) is not None:
                self.narrowing.drop(key_of(pod))
            self._dirty.add(gangs.key_of_gang(pod))

    def hold_until(self, key: JobKey, until: float) -> None:
        """Do not start this gang before then."""
        self._held_until[key] = until
        self._dirty.add(key)

    def close(self, queue: str, cause: str) -> None:
        """A queue cannot be used: its gangs wait."""
        self.closed[queue] = cause

    def open(self, queue: str) -> None:
        """A queue can be used again."""
        if self.closed.pop(queue, None) is not None:
            self._dirty |= {key for key, name in self.held_back.items() if name == queue}

    def assumed(self, pod: Pod) -> Place | None:
        """The place that a pod is taken to have until its binding is seen."""
        return self._assumed.get(pod.metadata.uid)

    def pending(self) -> Pending:
        """What is not seen on the cluster yet."""
        return Pending(dict(self._assumed), set(self._leaving), dict(self.narrowing.storage.promised), dict(self._held_until))

    def resume(self, pending: Pending) -> None:
        """Take over what another core decided; before it hears of pods."""
        self._assumed, self._leaving = dict(pending.assumed), set(pending.leaving)
        self.narrowing.storage.promised.update(pending.promised)
        self._held_until.update(pending.held_until)

    def forget(self, now: float) -> None:
        """Runs that have left and do not come back are of no use any more."""
        memory.forget(self.scheduler.ledger, self._gangs.keys(), now)

    def stays(self, pods: Sequence[Pod]) -> None:
        """These were to make room, and could not be asked: the core may choose anew."""
        for pod in pods:
            self._leaving.discard(pod.metadata.uid)
            self._dirty.add(gangs.key_of_gang(pod))

    # Deciding

    def decide(self, now: float) -> Outcome:
        """Tell the core what has changed, and let it decide. What it decides is assumed.

        `BrokenError` names the objects for which that failed.
        """
        broken = BrokenError()
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
            memory.drop_stale(self.scheduler.ledger)
            self._begun = True
        self._finished.clear()
        self._tell_places(now, broken)  # Gangs may have brought host ports that no node had so far.
        broken.check()
        decision = self.scheduler.decide(now)
        binds = self._starts(decision.starts, now)
        rooms = tuple(Room(each, tuple(self._gangs.get(each.key, {}).values())) for each in decision.evictions)
        self._leaving.update(pod.metadata.uid for room in rooms for pod in room.pods)
        return Outcome(tuple(binds), rooms, tuple(self._halves.overdue(now)), self._wake(decision.wake_at, now))

    def _starts(self, starts: Sequence[Start], now: float) -> list[Bind]:
        broken, binds = BrokenError(), []
        for start in starts:
            with broken.noting(GANG, start.key):
                bind = self._start(start, now)
                if bind is not None:
                    binds.append(bind)
        broken.check()
        return binds

    def _look_again(self, now: float) -> None:
        """Gangs whose places depend on others are looked at whenever others have changed."""
        company, ledger = self.narrowing.company, self.scheduler.ledger
        for waiting in (self._paused, self._held_until):
            for key in [key for key, until in waiting.items() if until <= now]:
                del waiting[key]
                self._dirty.add(key)
        version, terms = self._seen
        if company.terms != terms:
            self._dirty |= set(ledger.room.keys())
        others_moved = self.narrowing.version != version
        for key, found in self._narrowed.items():
            # Places that were looked for here are of the moment: somebody else may have taken or left some.
            if found.parts or found.request is None or (others_moved and self._families.leads(key)):
                self._dirty.add(key)
        self._seen = (self.narrowing.version, company.terms)

    def _wake(self, at: float | None, now: float) -> float | None:
        """Those whose turn comes when another of their kind has started are looked at once more, at once."""
        again = [*self._paused.values(), *self._held_until.values()]
        half = self._halves.next()
        if half is not None:
            again.append(half)
        if self._dirty and self._families.waiting:
            again.append(now)
        return min([*again, *([at] if at is not None else [])], default=None)

    def _tell_places(self, now: float, broken: BrokenError) -> None:
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
            self.scheduler.apply(QueueSet(described), now)
        elif name in self.scheduler.ledger.queues:
            self.scheduler.apply(QueueGone(name), now)

    def _tell_node(self, name: str, now: float) -> None:
        value, known = self.ground.node(name), self.scheduler.ledger.nodes
        if value is None and name in known:
            self.scheduler.apply(NodeGone(name), now)
        elif value is not None and known.get(name) != value:
            self.scheduler.apply(NodeSeen(value), now)

    def members(self, key: JobKey) -> list[Member]:
        """The pods of a gang that are not over."""
        own = self._gangs.get(key, {})
        return [gangs.member_of(pod, self._assumed.get(pod.metadata.uid)) for pod in own.values()]

    def _tell_gang(self, key: JobKey, now: float) -> None:
        ledger = self.scheduler.ledger
        members = self.members(key)
        self._halves.look(key, members, now)
        if not members:
            self._gangs.pop(key, None)
            self._paused.pop(key, None)
        wrong = gangs.problem(members)
        self._note_refusal(key, wrong)
        before = ledger.running.get(key)
        since = before.since if before is not None else now
        sits = gangs.running_of(key, members, self._shapes, since, self._leaving) if not wrong else None
        if sits is None and before is not None:
            self.scheduler.apply(Left(key, now, key in self._finished), now)
        elif sits is not None and sits != before:
            self.scheduler.apply(Sits(sits), now)
        asks = gangs.request_of(key, members, self._shapes) if not wrong else None
        asks = self._narrow(key, asks, members)
        if asks is not None:
            if ledger.room.get(key) != asks:
                self.scheduler.apply(Asked(asks), now)
        elif key in ledger.room:
            self.scheduler.apply(Withdrawn(key), now)

    def _narrow(self, key: JobKey, asks: Request | None, members: Sequence[Member]) -> Request | None:
        """What the core is asked for, where that depends on others; None when it is not asked now."""
        waiting = gangs.startable(members) if asks is not None else []
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
        found = self._narrowed[key] = self.narrowing.narrowed(asks, waiting)
        if found.request is not None:
            del self.held_back[key]
        return found.request

    def _note_refusal(self, key: JobKey, wrong: str) -> None:
        if wrong:
            self.refused[key] = wrong
        else:
            self.refused.pop(key, None)

    def _start(self, start: Start, now: float) -> Bind | None:
        """Give the seats to the pods that wait, in order. None when others that got theirs just now are in the way."""
        left: dict[str, list[Seat]] = {}
        for seat in sorted(start.seats, key=lambda seat: seat.index):
            left.setdefault(seat.role, []).append(seat)
        narrowed = self._narrowed.get(start.key)
        parts = narrowed.parts if narrowed is not None else {}
        given = []
        for member in gangs.startable(self.members(start.key)):
            seat = left[parts.get(member.pod.metadata.uid, member.role)].pop(0)
            given.append((member.pod, gangs.place_of(seat, self.scheduler.ledger.nodes)))
        # Its seats are known by their places now: what the core has of them must be what the pods will say.
        self._dirty.add(start.key)
        if not self.narrowing.seat([(pod, place.node) for pod, place in given]):
            self._take_back(start.key, now)
            return None
        self._retried.discard(start.key)
        self._assumed.update((pod.metadata.uid, place) for pod, place in given)
        return Bind(start.key, tuple(given), self._claims(given) if narrowed is not None else ())

    def _claims(self, given: Sequence[tuple[Pod, Place]]) -> tuple[ToBind, ...]:
        nodes, storage = self.narrowing.company.nodes, self.narrowing.storage
        return tuple(one for pod, place in given for one in storage.to_bind(pod, nodes[place.node]))

    def _take_back(self, key: JobKey, now: float) -> None:
        """As if it had never started."""
        kept, name = self.scheduler.ledger.memory, str(key)
        ran, left = kept.ran.get(name), kept.left.get(name)
        self.scheduler.apply(Left(key, now), now)
        del kept.ran[name], kept.left[name]
        if ran is not None:
            kept.ran[name] = ran
        if left is not None:
            kept.left[name] = left
        self._paused[key] = now + PAUSE if key in self._retried else now
        self._retried.symmetric_difference_update({key})

    # Telling why

    def holds(self, now: float, silent: Collection[JobKey] = ()) -> dict[JobKey, Hold]:
        """Why gangs wait: those first in line, as far as there is an answer for so many; none where a `silent` one is first.

        `BrokenError` names the gangs for which looking for an answer fails.
        """
        ledger, broken = self.scheduler.ledger, BrokenError()
        lines = sorted(ledger.room.lines(), key=lambda line: line.rank())[:MOST_EXPLAINED]
        heads = [head for line in lines if (head := line.first()) is not None and head.key not in silent]
        found, spared = self._obstacles(heads, now)
        told: dict[JobKey, Hold] = {}
        for line in lines:
            head, obstacle = line.first(), found.get(line.key)
            if head is None or obstacle is None:
                continue
            with broken.noting(GANG, head.key):
                hold = self.ground.with_plugins(explain.hold(head, obstacle, ledger.nodes, spared.get(head.key, ())))
                told |= {each.key: self._in_words(each.key, hold) for each in line.in_order()}
        broken.check()
        told |= {key: self._in_words(key, None) for key, found in self._narrowed.items() if found.request is None}
        told |= {key: told[first] for key, first in self._families.followers() if first in told}
        told |= {key: _closed(name, self.closed[name]) for key, name in self.held_back.items() if name in self.closed}
        return told | {key: Hold("unsupported", words) for key, words in self.refused.items()}

    def _obstacles(self, heads: Sequence[Request], now: float) -> tuple[dict[LineKey, Obstacle], dict[JobKey, list[JobKey]]]:
        ledger = self.scheduler.ledger
        try:
            return explain.obstacles(ledger, heads, now), preempt.sparing(ledger, heads, now)
        except Exception:
            broken = BrokenError()
            for head in heads:
                with broken.noting(GANG, head.key):
                    explain.obstacles(ledger, [head], now)
                    preempt.sparing(ledger, [head], now)
            broken.check()
            raise

    def _in_words(self, key: JobKey, hold: Hold | None) -> Hold:
        """Where the core knows names of nodes only, it is said here why they are not others."""
        narrowed = self._narrowed.get(key)
        if hold is not None and (narrowed is None or hold.reason != "placement" or not narrowed.words):
            return hold
        words = narrowed.words if narrowed is not None else ""
        return Hold("placement", f"no node will do: {words}", "it goes on by itself when that changes")


def _closed(queue: str, cause: str) -> Hold:
    return Hold("fault", f"its queue {queue} cannot be used: {cause}", "it goes on by itself when the queue works again")


def _gets_no_place(pod: Pod) -> bool:
    """Whether it was deleted before it had one: it cannot be bound any more, however long a finalizer keeps it."""
    return pod.metadata.deletion_timestamp is not None and not pod.spec.node_name


def _alike(before: Node, now: Node) -> bool:
    """Whether nothing changed that matters for placing."""
    same_state = [(one.type, one.status) for one in before.status.conditions] == [
        (one.type, one.status) for one in now.status.conditions
    ]
    return (
        same_state
        and before.spec == now.spec
        and before.metadata.labels == now.metadata.labels
        and before.status.allocatable == now.status.allocatable
        and before.status.capacity == now.status.capacity
    )
