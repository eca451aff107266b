"""Who may be asked to make room for whom, and what that costs."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from fairway.plan.scheduling import amounts, rights, timeshare
from fairway.plan.scheduling.amounts import Amounts
from fairway.plan.scheduling.decision import Cause
from fairway.plan.scheduling.ledger import Ledger, key_of
from fairway.plan.scheduling.request import Request, Running
from fairway.plan.scheduling.rights import Own
from fairway.plan.scheduling.roster import Newest, lost_since, weight_of
from fairway.plan.scheduling.shape import Gang, Seat
from fairway.plan.scheduling.waiting import LineKey
from fairway.state.job import JobKey
from fairway.state.queue import GPU_TYPE, Queue

RESTART_COST = 60.0
"""Seconds that leaving and coming again take, roughly."""
MARGIN = 0.9
"""A queue takes back its part only from those that have had clearly more: small differences even out as runs end."""
EVEN = 0.95
"""A queue passes its part for a gang that does not fit into the rest of it only when it has had so much less lately."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang, or the tasks of it beyond its least, that could make room."""

    running: Running
    seats: tuple[Seat, ...]
    """What becomes free."""
    cause: Cause
    cost: float
    """GPU-seconds of work that would be done again, and of places that stand idle meanwhile."""

    rank: tuple[bool, int, float, int, JobKey] = field(init=False, repr=False, compare=False)
    """Cheapest first. More than any cost weighs that tasks beyond the least go first, then whole gangs by urgency."""

    def __post_init__(self) -> None:
        request = self.running.request
        rank = (self.cause is not Cause.SHRINK, request.priority, self.cost, len(self.seats), request.key)
        object.__setattr__(self, "rank", rank)

    @property
    def key(self) -> JobKey:
        """Which run it is."""
        return self.rank[4]

    @property
    def standing(self) -> tuple[bool, int]:
        """What weighs more than any cost."""
        return self.rank[:2]


by_rank = attrgetter("rank")


@dataclass(slots=True)
class Rivals:
    """Who could give way, seen from all queues at once; made for one decision."""

    own: Mapping[str, Own]
    used: Mapping[str, Amounts]
    """What each queue will use when those have left who are on the way out, and those have started whom they leave for."""
    spare: Mapping[str, Own]
    """What each queue does not use of its own then; below zero what it borrows."""
    borrowing: dict[str, int]
    """Queues that use more than belongs to them, or would if those started for whom places are kept; with the lowest priority
    of those."""
    lowest: int
    """The lowest priority of all that run."""
    lenders: set[str]
    """Queues that borrow nothing while others do."""
    owners: set[str]
    """Those of them that may take back anything: they have a quota, or have had less than one that borrows."""
    had: Mapping[str, float]
    """What each queue has and has had lately, by its weight: who has had less is served first."""
    free: Amounts
    """What nobody holds, or will hold any longer when those have left who are on the way out."""

    @classmethod
    def at(cls, ledger: Ledger, now: float, more: tuple[str, ...] = ()) -> Rivals:
        """As things stand; `more` are queues that count though nobody of them waits or runs."""
        queues = {queue.name: queue for queue in (*ledger.active(), *(ledger.queue(name) for name in more))}
        own = rights.belongings([queues[name] for name in sorted(queues)], ledger.accounts.totals)
        borrowing: dict[str, int] = {}
        used = _used(ledger)
        spare = {name: rights.spare(mine, used.get(name, {})) for name, mine in own.items()}
        for queue, priority in ledger.roster.classes:
            if any(count < 0 for count in spare[queue].values()):
                borrowing[queue] = min(priority, borrowing.get(queue, priority))
        _add_hoping(ledger, spare, borrowing)
        free = dict(ledger.accounts.totals)
        for held in ledger.roster.held.values():
            amounts.add(free, held, -1)
        had = {name: ledger.accounts.had(name, now) / queues[name].weight for name in borrowing}
        lowest = min((priority for _, priority in ledger.roster.classes), default=0)
        lenders = {name for name, left in spare.items() if borrowing and all(count >= 0 for count in left.values())}
        found = cls(own, used, spare, borrowing, lowest, lenders, set(), had, free)
        found.owners = {name for name in lenders if found._owns(ledger, queues[name], now)}
        return found

    def _owns(self, ledger: Ledger, queue: Queue, now: float) -> bool:
        """Whether the queue may take back anything, however little it asks for."""
        if queue.quota:
            return True
        more = self.more_of(ledger, queue.name, {})
        return ledger.accounts.had(queue.name, now, more) / queue.weight <= MARGIN * max(self.had.values())

    def more_of(self, ledger: Ledger, queue: str, asked: Amounts) -> Amounts:
        """What the queue will use more than now, with what is asked besides."""
        more = dict(asked)
        amounts.add(more, self.used.get(queue, {}))
        amounts.add(more, ledger.accounts.used.get(queue, {}), -1)
        return more

    def matter_to(self, ledger: Ledger, line: LineKey, asked: Amounts) -> bool:
        """Whether anybody of that line might have a claim on somebody. Quick, and generous."""
        if (
            line.priority > self.lowest
            or line.queue in self.owners
            or ledger.roster.surplus
            or ledger.queue(line.queue).time_slice
        ):
            return True
        # Nobody need give way to it, but it may do with what is free anyway.
        return line.queue in self.lenders and all(self.free.get(name, 0) >= count for name, count in asked.items())


class Claim:
    """By what right a run may take the places of others."""

    def __init__(
        self, ledger: Ledger, rivals: Rivals, request: Request, asked: Amounts, now: float, spared: Collection[JobKey] = ()
    ) -> None:
        """`spared` are left alone whatever the right."""
        self._ledger, self._rivals, self._now, self._spared = ledger, rivals, now, spared
        self.request = request
        self._known: tuple[dict[JobKey, list[Victim]], ...] = ({}, {})
        """Who could make room and how, of all queues and of its own alone."""
        self._lesser: dict[str, bool] = {}
        self._causes: dict[tuple[str, int], Cause | None] = {}
        queue = ledger.queue(request.queue)
        self._slice = queue.time_slice
        spare = rivals.spare[queue.name]
        beyond = rights.beyond(queue, spare, asked) if rivals.borrowing else None
        self._owns = beyond is not None
        self._beyond = beyond or {}
        # A quota is its own whatever it has had; a part by weight only as long as it has had less than the others.
        self._had = 0.0
        if self._owns and not queue.quota:
            self._had = ledger.accounts.had(queue.name, now, rivals.more_of(ledger, queue.name, asked)) / queue.weight

    def cause(self, queue: str, priority: int) -> Cause | None:
        """Why a run of that queue and priority must give way; None: it need not. Turns are another matter."""
        of = (queue, priority)
        if of not in self._causes:
            self._causes[of] = self._cause(queue, priority)
        return self._causes[of]

    def _cause(self, queue: str, priority: int) -> Cause | None:
        if self.request.priority > priority:
            return Cause.PRIORITY
        if self.request.priority < priority or queue == self.request.queue or not self._owns:
            return None
        if self._beyond:
            return Cause.RECLAIM if self._is_behind(queue) else None
        return Cause.RECLAIM if self._had <= MARGIN * self._rivals.had.get(queue, -1.0) else None

    def _is_behind(self, queue: str) -> bool:
        """Whether its own queue has had less than that one for long, and is even with it at best after this."""
        if self._had > self._rivals.had.get(queue, -1.0):
            return False
        mine, other = self._ledger.queue(self.request.queue), self._ledger.queue(queue)
        recent = self._ledger.accounts.recent
        return recent(mine.name, self._now) / mine.weight <= EVEN * recent(queue, self._now) / other.weight

    def is_promising(self, asked: Amounts) -> bool:
        """Whether there is anybody who might give way, and whether all of those together hold enough."""
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
        """Whether what is kept for that waiting run is the claimant's: it is its own, or the run would have to give way."""
        known = self._lesser.get(name)
        if known is None:
            owner = self._ledger.room.get(key_of(name))
            known = owner is not None and (owner.key == self.request.key or self.cause(owner.queue, owner.priority) is not None)
            self._lesser[name] = known
        return known

    def cheapest(self, most: int, *, own_queue: bool) -> list[Victim]:
        """Those who may be asked, the cheapest of them first; `own_queue`: only whole gangs of the same queue."""
        keys = dict.fromkeys(self._cheapest_gangs(most, own_queue=own_queue))
        if self._slice:
            keys.update(dict.fromkeys(self._ledger.rotation.above(self.request.queue, self._level())))
        if not own_queue:
            keys.update(self._ledger.roster.surplus)
        found = [victim for key in keys for victim in self.victims(key, own_queue=own_queue)]
        return heapq.nsmallest(most, found, key=by_rank)

    def finds_anybody(self, *, own_queue: bool) -> bool:
        """Whether any of those that `cheapest` names would be let go by its queue. Quick, and generous."""
        mine, roster = self.request, self._ledger.roster
        if self._slice:
            return True
        for (queue, priority), held in roster.held.items():
            if own_queue and queue != mine.queue:
                continue
            cause = self.cause(queue, priority)
            if cause is Cause.PRIORITY or (cause is Cause.RECLAIM and self._borrows(queue, held)):
                return True
            if priority <= mine.priority and (queue, priority) in roster.dispensable and self._is_entitled(queue):
                return True
        return False

    def _borrows(self, queue: str, held: Mapping[str, int]) -> bool:
        """Whether `may_reclaim` could say yes of anybody of that queue, who hold so much together."""
        spare = self._rivals.spare[queue]
        return any(self._beyond.get(name, 0) > count and held.get(name, 0) > 0 for name, count in spare.items())

    def _is_entitled(self, queue: str) -> bool:
        """Whether gangs of that queue that are no more urgent do without what they need not have."""
        return queue == self.request.queue or self._owns or queue in self._rivals.borrowing

    def _cheapest_gangs(self, most: int, *, own_queue: bool) -> list[JobKey]:
        """Of those who must give way to its priority or its queue, without a look at those who cost more."""
        kinds, roster = _kinds(self.request.gang), self._ledger.roster
        classes: dict[int, list[str]] = {}
        for queue, priority in roster.classes:
            if self.cause(queue, priority) is not None and not (own_queue and queue != self.request.queue):
                classes.setdefault(priority, []).append(queue)
        found: list[JobKey] = []
        for priority in sorted(classes):
            rows = [row for queue in classes[priority] for row in roster.newest((queue, priority), kinds)]
            found += _cheapest_of(rows, most - len(found), self._now)
            if len(found) >= most:
                break
        return found

    def victims(self, key: JobKey, *, own_queue: bool) -> list[Victim]:
        """How that gang may be asked to make room: with its tasks beyond the least, or as a whole."""
        known = self._known[own_queue]
        found = known.get(key)
        if found is None:
            found = known[key] = list(self._victims(self._ledger.running[key], own_queue=own_queue))
        return found

    def _victims(self, running: Running, *, own_queue: bool) -> Iterator[Victim]:
        other = running.request
        if running.leaving or other.key == self.request.key or other.key in self._spared:
            return
        if own_queue and other.queue != self.request.queue:
            return
        seats = self._ledger.roster.extra.get(other.key, ())
        if seats and not own_queue and other.priority <= self.request.priority and self._is_entitled(other.queue):
            yield Victim(running, seats, Cause.SHRINK, leaving_cost(running, self._now))
        cause = self.cause(other.queue, other.priority) or self._turn(running)
        if cause is not None:
            yield Victim(running, running.seats, cause, leaving_cost(running, self._now))

    def _turn(self, running: Running) -> Cause | None:
        other = running.request
        if not self._slice or other.queue != self.request.queue or other.priority != self.request.priority or not other.resumes:
            return None
        waits, sits = (self._ledger.standing(each, self._now) for each in (self.request, other))
        return Cause.SLICE if timeshare.may_displace(waits, sits, self._now, self._slice) else None

    def may_reclaim(self, queue: str, gone: Amounts, victim: Mapping[str, int]) -> bool:
        """Whether that queue still borrows when so much of what it uses is gone, and the victim holds of that.

        A quota is given back even if one large gang must leave for it. Between parts by weight, only those leave without whom
        their queue comes nearer to its own: else a little too much would cost everything.
        """
        quota = bool(self._ledger.queue(self.request.queue).quota)
        for name, count in self._rivals.spare[queue].items():
            over = self._beyond.get(name, 0) - (count + gone.get(name, 0))
            if over > 0 and victim.get(name, 0) > 0 and (quota or victim[name] <= 2 * over):
                return True
        return False

    def _level(self) -> int:
        return timeshare.level_of(self._ledger.standing(self.request, self._now), self._now)


def _used(ledger: Ledger) -> dict[str, Amounts]:
    """What queues will use when all who are on the way out have left and those have started whom they leave for."""
    found: dict[str, Amounts] = {}
    for (queue, _), held in ledger.roster.held.items():
        amounts.add(found.setdefault(queue, {}), held)
    if ledger.roster.leaving:
        for name, kept in ledger.memory.reservations.items():
            request = ledger.room.get(key_of(name)) if kept.claims else None
            if request is not None and any(key_of(claim) in ledger.roster.leaving for claim in kept.claims):
                amounts.add(found.setdefault(request.queue, {}), amounts.of_gang(request.gang))
    return found


def _add_hoping(ledger: Ledger, spare: Mapping[str, Own], borrowing: dict[str, int]) -> None:
    """Add the queues of those for whom places are kept and who will take their queue past what belongs to it."""
    short = {queue for queue, left in spare.items() if any(count < 0 for count in left.values())}
    for name in ledger.memory.reservations:
        line = ledger.room.line_at(key_of(name))
        if line is None:
            continue
        queue, priority = line.key.queue, line.key.priority
        if borrowing.get(queue, priority + 1) <= priority:
            continue
        if queue in short or _exceeds(line.asks(), spare[queue]):
            borrowing[queue] = priority


def _exceeds(asked: Amounts, left: Own) -> bool:
    """Whether more is asked for than is left of anything."""
    return any(what in left and count > left[what] for what, count in asked.items())


def _cheapest_of(rows: Sequence[tuple[float, list[Newest]]], most: int, now: float) -> list[JobKey]:
    """The cheapest first; of those that cost the same, by name."""
    firsts = [(weight, *members[0]) for weight, members in rows]
    heap = [(_cost(now, -since, weight), key, number, 0) for number, (weight, since, key) in enumerate(firsts)]
    heapq.heapify(heap)
    found: list[JobKey] = []
    while heap and len(found) < most:
        _, key, number, at = heap[0]
        found.append(key)
        weight, members = rows[number]
        if at + 1 < len(members):
            since, key = members[at + 1]
            heapq.heapreplace(heap, (_cost(now, -since, weight), key, number, at + 1))
        else:
            heapq.heappop(heap)
    return found


def _kinds(gang: Gang) -> set[str] | None:
    """The types of GPUs of which somebody must have some to be of any help; None: any."""
    wanted = [part.shape.gpu_types for part in gang.parts if part.shape.gpus]
    return {f"{GPU_TYPE}{kind}" for kinds in wanted for kind in kinds} if wanted and all(wanted) else None


def leaving_cost(running: Running, now: float) -> float:
    """What is lost when it leaves now: all since its last checkpoint, or since its start; and the time to come again."""
    return _cost(now, lost_since(running), weight_of(running.request.gang))


def _cost(now: float, since: float, weight: float) -> float:
    return (max(0.0, now - since) + RESTART_COST) * max(weight, 0.001)
