"""The cheapest choice of victims: which of those who may be asked to leave let a gang start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from fairway.plan.scheduling import amounts, finding, slack
from fairway.plan.scheduling.amounts import Amounts
from fairway.plan.scheduling.decision import Cause
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.shape import Gang, Seat
from fairway.plan.scheduling.victims import Claim, Victim, by_rank
from fairway.state.job import JobKey

MOST_CANDIDATES = 256
"""So many of the cheapest candidates are looked at; more for large gangs."""
MOST_NODES = 32
"""So many nodes are tried by themselves for a gang that needs only one."""

FEW = 8
"""Of no more candidates than this every choice is tried, so that the best is found."""

Seats = tuple[Seat, ...]
Choice = tuple[list[Victim], Seats]


def cheapest(ledger: Ledger, claim: Claim, *, own_queue: bool = False) -> Choice | None:
    """The cheapest of those who may be asked whose places let the gang start, and where it would start.

    None of those returned could stay. Nobody, when those who are on the way out anyway are enough. None when all of them
    together would not help. `own_queue`: what they leave counts for the rules of the queue, too.
    """
    cluster, request = ledger.cluster, claim.request
    base = cluster.mark()
    kept = ledger.memory.reservations.get(str(request.key))
    if kept is not None:
        cluster.give(kept.seats)
    for key in ledger.roster.leaving:
        cluster.give(ledger.running[key].seats)
    coming = finding.would_do(ledger, request) if finding.limit_of(ledger, request) is None else None
    found: Choice | None = None
    if coming is not None:
        found = ([], coming)
    elif claim.finds_anybody(own_queue=own_queue):
        found = _best(ledger, claim, own_queue=own_queue)
    cluster.undo(base)
    return found


def _best(ledger: Ledger, claim: Claim, *, own_queue: bool) -> Choice | None:
    best: tuple[tuple[object, ...], Choice] | None = None
    attempt = _Attempt(ledger, claim, claim.request, own_queue=own_queue)
    for group in _groups(ledger, claim, own_queue=own_queue):
        if best is not None and len(group) <= FEW and best[0] <= _price(group):
            continue
        found = attempt.run(group)
        if found is not None and (best is None or _price(found[0]) < best[0]):
            best = (_price(found[0]), found)
    return None if best is None else best[1]


def _price(victims: Sequence[Victim]) -> tuple[object, ...]:
    if not victims:
        return ()
    return (max(victim.standing for victim in victims), sum(victim.cost for victim in victims), len(victims))


def _groups(ledger: Ledger, claim: Claim, *, own_queue: bool) -> list[Sequence[Victim]]:
    """Ways to go through them: the cheapest first wherever they sit; node after node; one node alone."""
    size = claim.request.gang.size
    first: Sequence[Victim] = claim.cheapest(max(MOST_CANDIDATES, 16 * size), own_queue=own_queue)
    if len(first) <= FEW:
        every = [list(each) for size in range(1, len(first) + 1) for each in combinations(first, size)]
        return sorted(every, key=_order)
    names = dict.fromkeys(seat.node for victim in first for seat in victim.seats)
    nodes: list[tuple[tuple[object, ...], str, list[Victim]]] = []
    for name in names:
        sitters = ledger.promises.sitters.get(name, {})
        victims = [victim for key in sitters for victim in claim.victims(key, own_queue=own_queue)]
        if victims:
            victims.sort(key=by_rank)
            nodes.append((_price(victims)[:2], name, victims))
    nodes.sort(key=lambda node: node[:2])
    together: dict[tuple[JobKey, Cause], Victim] = {}
    for _, _, victims in nodes[: max(MOST_NODES, 2 * size)]:
        together.update(((victim.key, victim.cause), victim) for victim in victims)
    alone = [victims for _, _, victims in nodes[:MOST_NODES]]
    if size == 1:
        return [first, list(together.values()), *alone]
    return [first, list(together.values()), _task_by_task(ledger, claim, alone, own_queue=own_queue)]


def _task_by_task(ledger: Ledger, claim: Claim, nodes: Sequence[Sequence[Victim]], *, own_queue: bool) -> Sequence[Victim]:
    """The cheapest on each node that would let the largest task of the gang start, the cheapest node first; then the others."""
    gang = claim.request.gang
    largest = max(gang.parts, key=lambda part: (part.shape.gpus * part.shape.gpu_milli, part.shape.cpu))
    one = replace(claim.request, gang=Gang((replace(largest, least=1, most=1, apart=False, together=False),)))
    attempt = _Attempt(ledger, claim, one, own_queue=own_queue)
    found = sorted(
        (choice[0] for victims in nodes if (choice := attempt.run(victims)) is not None), key=lambda chosen: _order(chosen)
    )
    ordered: dict[tuple[JobKey, Cause], Victim] = {}
    for victims in (*found, *nodes):
        for victim in victims:
            ordered.setdefault((victim.key, victim.cause), victim)
    return list(ordered.values())


def _order(victims: Sequence[Victim]) -> tuple[object, ...]:
    return (*_price(victims), *(victim.key for victim in victims))


class _Attempt:
    """Add victims in order until the gang fits, then spare each that is not needed after all."""

    def __init__(self, ledger: Ledger, claim: Claim, request: Request, *, own_queue: bool) -> None:
        """`request` is what must fit: the claim's, or a part of it."""
        self._ledger, self._claim, self._request, self._own_queue = ledger, claim, request, own_queue
        self._cluster = ledger.cluster
        self._idle = [idle.node for idle in slack.idle_nodes(ledger)][:MOST_NODES]

    def run(self, group: Sequence[Victim]) -> Choice | None:
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
        """What is kept there for those who would have to give way if they ran is not in the way."""
        own = str(self._claim.request.key)
        for node in nodes:
            for name, seats in self._ledger.promises.kept_for(node):
                if name != own and not self._ledger.memory.reservations[name].exact and self._claim.is_lesser(name):
                    self._cluster.give(seats)

    def _steps(self, group: Sequence[Victim]) -> list[tuple[Victim, Seats]]:
        """Who leaves one after the other, with what becomes free more by it. No queue is made to give more than it borrowed."""
        steps: list[tuple[Victim, Seats]] = []
        gone: dict[str, Amounts] = {}
        freed: dict[JobKey, Seats] = {}
        for victim in group:
            queue, key = victim.running.request.queue, victim.key
            less = gone.setdefault(queue, {})
            if victim.cause is Cause.RECLAIM and not self._claim.may_reclaim(queue, less, self._ledger.taken(key)):
                continue
            before = set(freed.get(key, ()))
            more = tuple(seat for seat in victim.seats if seat not in before)
            freed[key] = victim.seats
            amounts.add(less, amounts.of_seats(more, self._ledger.nodes))
            steps.append((victim, more))
        return steps

    def _least_count(self, steps: Sequence[tuple[Victim, Seats]], mark: int) -> int:
        """How many of the steps are enough, the first ones; 0 when all of them are not. They are done then."""
        for _, seats in steps:
            self._cluster.give(seats)
        enough = self._fits([victim for victim, _ in steps]) is not None
        self._cluster.undo(mark)
        if not enough:
            return 0
        done, step = 0, 1
        while True:
            if done >= len(steps):
                return 0
            for _, seats in steps[done : done + step]:
                self._cluster.give(seats)
            done, step = min(len(steps), done + step), step * 2
            if self._fits([victim for victim, _ in steps[:done]]) is not None:
                break
        too_few = done // 2
        while done - too_few > 1:
            middle = (done + too_few) // 2
            self._cluster.undo(mark)
            for _, seats in steps[:middle]:
                self._cluster.give(seats)
            enough = self._fits([victim for victim, _ in steps[:middle]]) is not None
            done, too_few = (middle, too_few) if enough else (done, middle)
        self._cluster.undo(mark)
        for _, seats in steps[:done]:
            self._cluster.give(seats)
        return done

    def _spare(self, steps: Sequence[tuple[Victim, Seats]]) -> list[Victim]:
        """Only those that are needed, the dearest spared first."""
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

    def _shrink_less(self, victim: Victim, chosen: Sequence[Victim]) -> tuple[Victim, Seats]:
        """An elastic gang keeps as many tasks as it can."""
        if victim.cause is not Cause.SHRINK:
            return victim, victim.seats
        few, enough = 0, len(victim.seats)
        while enough - few > 1:
            middle = (few + enough) // 2
            self._cluster.take(victim.seats[middle:])
            fits = self._fits(chosen) is not None
            self._cluster.give(victim.seats[middle:])
            few, enough = (few, middle) if fits else (middle, enough)
        self._cluster.take(victim.seats[enough:])
        return replace(victim, seats=victim.seats[:enough]), victim.seats[:enough]

    def _fits(self, gone: Sequence[Victim]) -> Seats | None:
        request = self._request
        left: list[tuple[str, Amounts]] = []
        if self._own_queue:
            left = [(victim.running.request.user, self._ledger.taken(victim.key)) for victim in gone]
        if finding.limit_of(self._ledger, request, left) is not None:
            return None
        return finding.would_do(self._ledger, request, left)
