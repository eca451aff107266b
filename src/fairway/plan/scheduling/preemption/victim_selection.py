"""Victim selection: find the cheapest set of victims whose eviction lets a gang start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from fairway.plan.scheduling import resource_amount, seat_finder
from fairway.plan.scheduling.decision import EvictionCause
from fairway.plan.scheduling.gang import GangShape, TaskSeat
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.preemption.victim import PreemptionClaim, PreemptionVictim, by_rank
from fairway.plan.scheduling.reservation import idle_reserved_node
from fairway.plan.scheduling.resource_amount import Amounts
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.state.job import JobKey

MOST_CANDIDATES = 256
"""Maximum number of candidates considered, the cheapest first; more for large gangs."""
MOST_NODES = 32
"""Maximum number of nodes tried individually for a gang of one task."""

FEW = 8
"""Up to this many candidates, every combination is tried, so that the best one is found."""

Seats = tuple[TaskSeat, ...]
Choice = tuple[list[PreemptionVictim], Seats]


def cheapest(ledger: SchedulerState, claim: PreemptionClaim, *, own_queue: bool = False) -> Choice | None:
    """Return the cheapest set of victims that lets the claiming gang start, and the seats that it would get.

    The set is minimal. It is empty when the places of runs that are leaving already are enough. None when evicting all
    candidates would not help. `own_queue`: resources freed by the victims also count for the limits of the gang's queue.
    """
    cluster, request = ledger.cluster, claim.request
    base = cluster.mark()
    reservation = ledger.memory.reservations.get(str(request.key))
    if reservation is not None:
        cluster.give(reservation.seats)
    for key in ledger.roster.leaving:
        cluster.give(ledger.running[key].seats)
    seats = seat_finder.would_do(ledger, request) if seat_finder.limit_of(ledger, request) is None else None
    result: Choice | None = None
    if seats is not None:
        result = ([], seats)
    elif claim.finds_anybody(own_queue=own_queue):
        result = _best(ledger, claim, own_queue=own_queue)
    cluster.undo(base)
    return result


def _best(ledger: SchedulerState, claim: PreemptionClaim, *, own_queue: bool) -> Choice | None:
    best: tuple[tuple[object, ...], Choice] | None = None
    attempt = _VictimTrial(ledger, claim, claim.request, own_queue=own_queue)
    for group in _groups(ledger, claim, own_queue=own_queue):
        if best is not None and len(group) <= FEW and best[0] <= _price(group):
            continue
        result = attempt.run(group)
        if result is not None and (best is None or _price(result[0]) < best[0]):
            best = (_price(result[0]), result)
    return None if best is None else best[1]


def _price(victims: Sequence[PreemptionVictim]) -> tuple[object, ...]:
    if not victims:
        return ()
    return (max(victim.standing for victim in victims), sum(victim.cost for victim in victims), len(victims))


def _groups(ledger: SchedulerState, claim: PreemptionClaim, *, own_queue: bool) -> list[Sequence[PreemptionVictim]]:
    """Return candidate lists to try: all combinations of a few; else cheapest first anywhere, node after node, single nodes."""
    size = claim.request.gang.size
    candidates: Sequence[PreemptionVictim] = claim.cheapest(max(MOST_CANDIDATES, 16 * size), own_queue=own_queue)
    if len(candidates) <= FEW:
        every = [list(combination) for size in range(1, len(candidates) + 1) for combination in combinations(candidates, size)]
        return sorted(every, key=_order)
    names = dict.fromkeys(seat.node for victim in candidates for seat in victim.seats)
    nodes: list[tuple[tuple[object, ...], str, list[PreemptionVictim]]] = []
    for name in names:
        sitters = ledger.promises.sitters.get(name, {})
        victims = [victim for key in sitters for victim in claim.victims(key, own_queue=own_queue)]
        if victims:
            victims.sort(key=by_rank)
            nodes.append((_price(victims)[:2], name, victims))
    nodes.sort(key=lambda node: node[:2])
    together: dict[tuple[JobKey, EvictionCause], PreemptionVictim] = {}
    for _, _, victims in nodes[: max(MOST_NODES, 2 * size)]:
        together.update(((victim.key, victim.cause), victim) for victim in victims)
    single_nodes = [victims for _, _, victims in nodes[:MOST_NODES]]
    if size == 1:
        return [candidates, list(together.values()), *single_nodes]
    return [candidates, list(together.values()), _task_by_task(ledger, claim, single_nodes, own_queue=own_queue)]


def _task_by_task(
    ledger: SchedulerState, claim: PreemptionClaim, nodes: Sequence[Sequence[PreemptionVictim]], *, own_queue: bool
) -> Sequence[PreemptionVictim]:
    """Return candidates ordered for a gang of several tasks.

    First the cheapest victims on each node that would let the gang's largest task start, the cheapest node first; then the
    other candidates.
    """
    gang = claim.request.gang
    largest = max(gang.parts, key=lambda part: (part.shape.gpus * part.shape.gpu_milli, part.shape.cpu))
    single = replace(claim.request, gang=GangShape((replace(largest, least=1, most=1, apart=False, together=False),)))
    attempt = _VictimTrial(ledger, claim, single, own_queue=own_queue)
    victim_sets = sorted(
        (choice[0] for victims in nodes if (choice := attempt.run(victims)) is not None), key=lambda chosen: _order(chosen)
    )
    ordered: dict[tuple[JobKey, EvictionCause], PreemptionVictim] = {}
    for victims in (*victim_sets, *nodes):
        for victim in victims:
            ordered.setdefault((victim.key, victim.cause), victim)
    return list(ordered.values())


def _order(victims: Sequence[PreemptionVictim]) -> tuple[object, ...]:
    return (*_price(victims), *(victim.key for victim in victims))


class _VictimTrial:
    """Adds victims in order until the gang fits, then removes each victim that is not needed after all."""

    def __init__(self, ledger: SchedulerState, claim: PreemptionClaim, request: GangRequest, *, own_queue: bool) -> None:
        """`request` is what must fit: the claim's request or a part of it."""
        self._ledger, self._claim, self._request, self._own_queue = ledger, claim, request, own_queue
        self._cluster = ledger.cluster
        self._idle = [idle.node for idle in idle_reserved_node.idle_nodes(ledger)][:MOST_NODES]

    def run(self, group: Sequence[PreemptionVictim]) -> Choice | None:
        steps = self._steps(group)
        if not steps:
            return None
        mark = self._cluster.mark()
        self._give_lesser(dict.fromkeys([*self._idle, *(seat.node for victim in group for seat in victim.seats)]))
        base = self._cluster.mark()
        count = self._least_count(steps, base)
        if not count:
            self._cluster.undo(mark)
            return None
        chosen = self._spare(steps[:count])
        shrunk = [self._shrink_less(victim, chosen) for victim in chosen]
        seats = self._fits([victim for victim, _ in shrunk])
        self._cluster.undo(mark)
        return ([victim for victim, _ in shrunk], seats) if seats is not None else None

    def _give_lesser(self, nodes: Iterable[str]) -> None:
        """Free the places on these nodes that are reserved for runs which the claim could preempt if they ran."""
        own = str(self._claim.request.key)
        for node in nodes:
            for name, seats in self._ledger.promises.kept_for(node):
                if name != own and not self._ledger.memory.reservations[name].exact and self._claim.is_lesser(name):
                    self._cluster.give(seats)

    def _steps(self, group: Sequence[PreemptionVictim]) -> list[tuple[PreemptionVictim, Seats]]:
        """Return the victims one after another, each with the seats that it frees in addition.

        No queue has to return more than it borrowed.
        """
        steps: list[tuple[PreemptionVictim, Seats]] = []
        freed_by_queue: dict[str, Amounts] = {}
        freed: dict[JobKey, Seats] = {}
        for victim in group:
            queue, key = victim.running.request.queue, victim.key
            queue_freed = freed_by_queue.setdefault(queue, {})
            if victim.cause is EvictionCause.RECLAIM and not self._claim.may_reclaim(queue, queue_freed, self._ledger.taken(key)):
                continue
            before = set(freed.get(key, ()))
            more = tuple(seat for seat in victim.seats if seat not in before)
            freed[key] = victim.seats
            resource_amount.add(queue_freed, resource_amount.of_seats(more, self._ledger.nodes))
            steps.append((victim, more))
        return steps

    def _least_count(self, steps: Sequence[tuple[PreemptionVictim, Seats]], mark: int) -> int:
        """Return how many of the first steps suffice, and leave their seats freed; 0 when all steps together do not suffice."""
        for _, seats in steps:
            self._cluster.give(seats)
        enough = self._fits([victim for victim, _ in steps]) is not None
        self._cluster.undo(mark)
        if not enough:
            return 0
        count, step = 0, 1
        while True:
            if count >= len(steps):
                return 0
            for _, seats in steps[count : count + step]:
                self._cluster.give(seats)
            count, step = min(len(steps), count + step), step * 2
            if self._fits([victim for victim, _ in steps[:count]]) is not None:
                break
        too_few = count // 2
        while count - too_few > 1:
            middle = (count + too_few) // 2
            self._cluster.undo(mark)
            for _, seats in steps[:middle]:
                self._cluster.give(seats)
            enough = self._fits([victim for victim, _ in steps[:middle]]) is not None
            count, too_few = (middle, too_few) if enough else (count, middle)
        self._cluster.undo(mark)
        for _, seats in steps[:count]:
            self._cluster.give(seats)
        return count

    def _spare(self, steps: Sequence[tuple[PreemptionVictim, Seats]]) -> list[PreemptionVictim]:
        """Return only the victims that are needed; the most expensive ones are dropped first where possible."""
        needed = dict.fromkeys(range(len(steps)))
        whole: set[JobKey] = set()
        for number in sorted(needed, key=lambda number: steps[number][0].rank, reverse=True):
            victim, seats = steps[number]
            if victim.key in whole:
                del needed[number]
                continue
            self._cluster.take(seats)
            rest = [steps[other][0] for other in needed if other != number]
            if self._fits(rest) is not None:
                del needed[number]
            else:
                self._cluster.give(seats)
                whole.add(victim.key)
        return [steps[number][0] for number in needed]

    def _shrink_less(self, victim: PreemptionVictim, chosen: Sequence[PreemptionVictim]) -> tuple[PreemptionVictim, Seats]:
        """Reduce the seats taken from an elastic gang to the minimum needed."""
        if victim.cause is not EvictionCause.SHRINK:
            return victim, victim.seats
        too_few, enough = 0, len(victim.seats)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            self._cluster.take(victim.seats[middle:])
            fits = self._fits(chosen) is not None
            self._cluster.give(victim.seats[middle:])
            too_few, enough = (too_few, middle) if fits else (middle, enough)
        self._cluster.take(victim.seats[enough:])
        return replace(victim, seats=victim.seats[:enough]), victim.seats[:enough]

    def _fits(self, gone: Sequence[PreemptionVictim]) -> Seats | None:
        request = self._request
        evicted: list[tuple[str, Amounts]] = []
        if self._own_queue:
            evicted = [(victim.running.request.user, self._ledger.taken(victim.key)) for victim in gone]
        if seat_finder.limit_of(self._ledger, request, evicted) is not None:
            return None
        return seat_finder.would_do(self._ledger, request, evicted)
