"""Preemption candidates: which running gangs a waiting run may preempt, why, and at what cost."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from fairway.plan.scheduling.cluster.running_index import Newest, lost_since, weight_of
from fairway.plan.scheduling.decision import EvictionCause
from fairway.plan.scheduling.gang import GangShape, TaskSeat
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.scheduling.preemption.queue_balance import MARGIN, PreemptionView
from fairway.plan.scheduling.queueing import queue_rule, time_slice
from fairway.plan.scheduling.resource_amount import Amounts
from fairway.plan.scheduling.scheduler_state import SchedulerState, key_of
from fairway.state.job import JobKey
from fairway.state.queue import GPU_TYPE

RESTART_COST = 60.0
"""Approximate cost of an eviction and restart, in seconds."""
EVEN = 0.95
"""A queue may exceed its share for a large gang only if its recent share is at most this fraction of the other queue's."""


@dataclass(frozen=True, slots=True)
class PreemptionVictim:
    """A gang, or its tasks beyond its minimum, that could be evicted."""

    running: RunningGang
    seats: tuple[TaskSeat, ...]
    """The seats that become free."""
    cause: EvictionCause
    cost: float
    """GPU-seconds of work that would be repeated, and of places that stay idle in the meantime."""

    rank: tuple[bool, int, float, int, JobKey] = field(init=False, repr=False, compare=False)
    """Sort key, the cheapest first: tasks beyond the minimum, then whole gangs by priority, each by cost."""

    def __post_init__(self) -> None:
        request = self.running.request
        rank = (self.cause is not EvictionCause.SHRINK, request.priority, self.cost, len(self.seats), request.key)
        object.__setattr__(self, "rank", rank)

    @property
    def key(self) -> JobKey:
        """The key of the run."""
        return self.rank[4]

    @property
    def standing(self) -> tuple[bool, int]:
        """The part of the rank that outweighs any cost."""
        return self.rank[:2]


by_rank = attrgetter("rank")


class PreemptionClaim:
    """The right of a waiting run to preempt others."""

    def __init__(
        self,
        ledger: SchedulerState,
        rivals: PreemptionView,
        request: GangRequest,
        asked: Amounts,
        now: float,
        spared: Collection[JobKey] = (),
    ) -> None:
        """`spared` are runs that are never chosen."""
        self._ledger, self._rivals, self._now, self._spared = ledger, rivals, now, spared
        self.request = request
        self._known: tuple[dict[JobKey, list[PreemptionVictim]], ...] = ({}, {})
        """Cached victims by run: of all queues, and of its own queue only."""
        self._lesser: dict[str, bool] = {}
        self._causes: dict[tuple[str, int, bool], EvictionCause | None] = {}
        queue = ledger.queue(request.queue)
        self._slice = queue.time_slice
        spare = rivals.spare[queue.name]
        beyond = queue_rule.beyond(queue, spare, asked) if rivals.borrowing else None
        self._owns = beyond is not None
        self._beyond = beyond or {}
        # A quota is guaranteed whatever the usage; a share by weight only while the queue has used less than the others.
        self._had = 0.0
        if self._owns and not queue.quota:
            self._had = ledger.accounts.had(queue.name, now, rivals.more_of(ledger, queue.name, asked)) / queue.weight

    def cause(self, queue: str, priority: int, *, loses_all: bool = False) -> EvictionCause | None:
        """Return why a run of that queue and priority may be preempted; None when it may not. Time slices are not considered.

        `loses_all`: the run has saved nothing. A run that is spared for that may be preempted after its first checkpoint.
        """
        of = (queue, priority, loses_all)
        if of not in self._causes:
            self._causes[of] = self._cause(queue, priority, loses_all=loses_all)
        return self._causes[of]

    def _cause(self, queue: str, priority: int, *, loses_all: bool = False) -> EvictionCause | None:
        mine = self.request.claim if loses_all else self.request.priority
        if mine > priority:
            return EvictionCause.PRIORITY
        if mine < priority or queue == self.request.queue or not self._owns:
            return None
        if self._beyond:
            return EvictionCause.RECLAIM if self._is_behind(queue) else None
        return EvictionCause.RECLAIM if self._had <= MARGIN * self._rivals.had.get(queue, -1.0) else None

    def _is_behind(self, queue: str) -> bool:
        """Return whether its own queue has clearly less recent usage than `queue`, and at most equal usage after this claim."""
        if self._had > self._rivals.had.get(queue, -1.0):
            return False
        mine, other = self._ledger.queue(self.request.queue), self._ledger.queue(queue)
        recent = self._ledger.accounts.recent
        return recent(mine.name, self._now) / mine.weight <= EVEN * recent(queue, self._now) / other.weight

    def is_promising(self, asked: Amounts) -> bool:
        """Return whether there may be victims, and whether all of them together hold enough. A fast, optimistic check."""
        mine, roster = self.request, self._ledger.roster
        if roster.surplus or (self._slice and self._ledger.rotation.anybody_above(mine.queue, self._level())):
            return True
        reclaims = self._owns and any(low <= mine.priority for name, low in self._rivals.borrowing.items() if name != mine.queue)
        if self._rivals.lowest >= mine.priority and not reclaims:
            return False
        may = [held for key, held in roster.held.items() if self.cause(*key) is not None]
        return all(
            self._rivals.free.get(name, 0) + sum(held.get(name, 0) for held in may) >= count for name, count in asked.items()
        )

    def is_lesser(self, name: str) -> bool:
        """Return whether the claim overrides that run's reservation: it is its own, or it could preempt the run."""
        result = self._lesser.get(name)
        if result is None:
            owner = self._ledger.room.get(key_of(name))
            result = owner is not None and (owner.key == self.request.key or self.cause(owner.queue, owner.priority) is not None)
            self._lesser[name] = result
        return result

    def cheapest(self, most: int, *, own_queue: bool) -> list[PreemptionVictim]:
        """Return up to `most` victims, the cheapest first; `own_queue`: only whole gangs of the same queue."""
        keys = dict.fromkeys(self._cheapest_gangs(most, own_queue=own_queue))
        if self._slice:
            keys.update(dict.fromkeys(self._ledger.rotation.above(self.request.queue, self._level())))
        if not own_queue:
            keys.update(self._ledger.roster.surplus)
        candidates = [victim for key in keys for victim in self.victims(key, own_queue=own_queue)]
        return heapq.nsmallest(most, candidates, key=by_rank)

    def finds_anybody(self, *, own_queue: bool) -> bool:
        """Return whether any victim may be usable under the rules of its queue. A fast, optimistic check."""
        mine, roster = self.request, self._ledger.roster
        if self._slice:
            return True
        for (queue, priority), held in roster.held.items():
            if own_queue and queue != mine.queue:
                continue
            cause = self.cause(queue, priority)
            if cause is EvictionCause.PRIORITY or (cause is EvictionCause.RECLAIM and self._borrows(queue, held)):
                return True
            if priority <= mine.priority and (queue, priority) in roster.dispensable and self._is_entitled(queue):
                return True
        return False

    def _borrows(self, queue: str, held: Mapping[str, int]) -> bool:
        """Return whether `may_reclaim` could be true for a run of that queue, whose runs together hold `held`."""
        spare = self._rivals.spare[queue]
        return any(self._beyond.get(name, 0) > count and held.get(name, 0) > 0 for name, count in spare.items())

    def _is_entitled(self, queue: str) -> bool:
        """Return whether gangs of that queue with at most the same priority must release tasks beyond their minimum."""
        return queue == self.request.queue or self._owns or queue in self._rivals.borrowing

    def _cheapest_gangs(self, most: int, *, own_queue: bool) -> list[JobKey]:
        """Return the cheapest gangs that may be preempted by priority or reclaim, without examining more expensive ones."""
        kinds, roster = _kinds(self.request.gang), self._ledger.roster
        classes: dict[int, list[str]] = {}
        for queue, priority in roster.classes:
            if self.cause(queue, priority) is not None and not (own_queue and queue != self.request.queue):
                classes.setdefault(priority, []).append(queue)
        keys: list[JobKey] = []
        for priority in sorted(classes):
            rows = [row for queue in classes[priority] for row in roster.newest((queue, priority), kinds)]
            keys += _cheapest_of(rows, most - len(keys), self._now, self._must_leave if self.request.service else None)
            if len(keys) >= most:
                break
        return keys

    def _must_leave(self, key: JobKey) -> bool:
        other = self._ledger.running[key].request
        return self.cause(other.queue, other.priority, loses_all=other.loses_all) is not None

    def victims(self, key: JobKey, *, own_queue: bool) -> list[PreemptionVictim]:
        """Return the ways to preempt that gang: its tasks beyond the minimum, or the whole gang."""
        cache = self._known[own_queue]
        result = cache.get(key)
        if result is None:
            result = cache[key] = list(self._victims(self._ledger.running[key], own_queue=own_queue))
        return result

    def _victims(self, running: RunningGang, *, own_queue: bool) -> Iterator[PreemptionVictim]:
        other = running.request
        if running.leaving or other.key == self.request.key or other.key in self._spared:
            return
        if own_queue and other.queue != self.request.queue:
            return
        seats = self._ledger.roster.extra.get(other.key, ())
        if seats and not own_queue and other.priority <= self.request.priority and self._is_entitled(other.queue):
            yield PreemptionVictim(running, seats, EvictionCause.SHRINK, leaving_cost(running, self._now))
        cause = self.cause(other.queue, other.priority, loses_all=other.loses_all) or self._turn(running)
        if cause is not None:
            yield PreemptionVictim(running, running.seats, cause, leaving_cost(running, self._now))

    def _turn(self, running: RunningGang) -> EvictionCause | None:
        other = running.request
        if not self._slice or other.queue != self.request.queue or other.priority != self.request.priority or not other.resumes:
            return None
        waiting, sitting = (self._ledger.standing(request, self._now) for request in (self.request, other))
        return EvictionCause.SLICE if time_slice.may_displace(waiting, sitting, self._now, self._slice) else None

    def may_reclaim(self, queue: str, gone: Amounts, victim: Mapping[str, int]) -> bool:
        """Return whether that queue still borrows a resource of the victim after `gone` is subtracted from its usage.

        For a quota even one large gang may be reclaimed. Between shares by weight a victim must bring its queue closer to its
        share: otherwise a small excess would cost a large gang.
        """
        quota = bool(self._ledger.queue(self.request.queue).quota)
        for name, count in self._rivals.spare[queue].items():
            excess = self._beyond.get(name, 0) - (count + gone.get(name, 0))
            if excess > 0 and victim.get(name, 0) > 0 and (quota or victim[name] <= 2 * excess):
                return True
        return False

    def _level(self) -> int:
        return time_slice.level_of(self._ledger.standing(self.request, self._now), self._now)


def _cheapest_of(
    rows: Sequence[tuple[float, list[Newest]]], most: int, now: float, may: Callable[[JobKey], bool] | None = None
) -> list[JobKey]:
    """Return the cheapest gangs first, ties by name. `may` selects runs; None selects all."""
    firsts = [(weight, *members[0]) for weight, members in rows]
    heap = [(_cost(now, -since, weight), key, number, 0) for number, (weight, since, key) in enumerate(firsts)]
    heapq.heapify(heap)
    keys: list[JobKey] = []
    while heap and len(keys) < most:
        _, key, number, at = heap[0]
        if may is None or may(key):
            keys.append(key)
        weight, members = rows[number]
        if at + 1 < len(members):
            since, key = members[at + 1]
            heapq.heapreplace(heap, (_cost(now, -since, weight), key, number, at + 1))
        else:
            heapq.heappop(heap)
    return keys


def _kinds(gang: GangShape) -> set[str] | None:
    """Return the GPU types of which a victim must hold some to be of use; None: any type."""
    types_by_part = [part.shape.gpu_types for part in gang.parts if part.shape.gpus]
    return {f"{GPU_TYPE}{kind}" for kinds in types_by_part for kind in kinds} if types_by_part and all(types_by_part) else None


def leaving_cost(running: RunningGang, now: float) -> float:
    """Return the cost of an eviction now: the work since the last checkpoint or start, and the restart."""
    return _cost(now, lost_since(running), weight_of(running.request.gang))


def _cost(now: float, since: float, weight: float) -> float:
    return (max(0.0, now - since) + RESTART_COST) * max(weight, 0.001)
