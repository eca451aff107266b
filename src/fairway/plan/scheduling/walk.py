"""The waiting lines in the order in which they are served, without looking at those for whom nothing has changed."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from fairway.plan.scheduling import rights
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.shape import Gang
from fairway.plan.scheduling.waiting import Entry, Line, Rank


class _Aisle:
    """One queue: its first lines in order, as far as they matter, and beyond them those that are worth a try."""

    def __init__(self, front: list[Entry], depth: int) -> None:
        self._front = front
        self._depth = depth
        self._at = 0
        self._passed = 0
        self._eager: list[Entry] = []
        self.limited: list[Line] = []
        """Lines that a rule keeps waiting: the first of those that were left out for that."""
        self._offered: set[Rank] = set()

    def offer(self, line: Line) -> None:
        """The line is worth a try."""
        rank = line.filed
        if rank is not None and rank not in self._offered:
            self._offered.add(rank)
            heapq.heappush(self._eager, (rank, line))

    def first_new(self, entries: list[Entry]) -> Entry | None:
        """The first of these that was not offered yet and that no rule keeps waiting."""
        for entry in entries:
            if entry[0] not in self._offered and entry[1].rule is None:
                return entry
        return None

    def next(self) -> Rank | None:
        """The rank of the line that comes next. Those that a rule keeps waiting are left out, unless they are worth a try."""
        front = self._front
        while self._at < len(front) and front[self._at][1].rule is not None and self._passed < self._depth:
            if len(self.limited) < self._depth:
                self.limited.append(front[self._at][1])
            self._at += 1
        while self._eager and self._eager[0][1].filed != self._eager[0][0]:
            heapq.heappop(self._eager)
        ranks = [self._eager[0][0]] if self._eager else []
        if self._passed < self._depth and self._at < len(self._front):
            ranks.append(self._front[self._at][0])
        return min(ranks, default=None)

    def pop(self, rank: Rank) -> tuple[Line, bool]:
        """That line, and whether it is worth a try."""
        if self._passed < self._depth and self._at < len(self._front) and self._front[self._at][0] == rank:
            line = self._front[self._at][1]
            self._at += 1
        else:
            line = self._eager[0][1]
        if self._eager and self._eager[0][0] == rank:
            heapq.heappop(self._eager)
            return line, True
        return line, False

    def started(self, line: Line, rank: Rank) -> None:
        """The first of the line is gone, and with it the line from where it was."""
        self._at = min(self._at, bisect_left(self._front, (rank,)))
        self.offer(line)

    def passed(self) -> bool:
        """One that came and must go on waiting; whether it is among the first of its queue."""
        self._passed += 1
        return self._passed <= self._depth


class Walk:
    """Iterates over lines, each with whether it is worth a try. A start changes the order of the rest."""

    def __init__(self, ledger: Ledger, eager: Iterable[Line], gangs: Iterable[Gang], depth: int, now: float) -> None:
        """`eager` are lines worth a try, and so are all that ask for one of these `gangs`, as long as there is room for it.

        `depth`: so many lines of a queue that go on waiting are shown even if they are not worth a try.
        """
        self._ledger, self._now = ledger, now
        self._aisles = {name: _Aisle(ledger.room.in_order(name), depth) for name in ledger.room.queues()}
        self._orders: dict[str, tuple[bool, float]] = {}
        self._heads: list[tuple[int, tuple[bool, float], Rank, str]] = []
        self._gangs = dict.fromkeys(gangs)
        for line in eager:
            if line.filed is not None:
                self._aisles[line.key.queue].offer(line)
        for name in self._aisles:
            self._show(name)
        for gang in list(self._gangs):
            self._offer_first(gang)

    def __iter__(self) -> Iterator[tuple[Line, bool]]:
        while self._heads:
            _, _, rank, name = heapq.heappop(self._heads)
            aisle = self._aisles[name]
            if aisle.next() == rank:
                yield aisle.pop(rank)
            self._show(name)

    def limited(self) -> list[Line]:
        """The first lines of each queue that were left out because a rule keeps them waiting."""
        return [line for name in sorted(self._aisles) for line in self._aisles[name].limited]

    def started(self, line: Line, rank: Rank) -> None:
        """The first of the line has started; the line comes again with its next."""
        self._orders.pop(line.key.queue, None)
        self._aisles[line.key.queue].started(line, rank)
        for gang in list(self._gangs):
            self._offer_first(gang)

    def failed(self, line: Line) -> None:
        """It was tried in vain. Where there is room all the same, others that ask for the same may have more luck."""
        if line.key.gang in self._gangs:
            self._offer_first(line.key.gang)

    def passed(self, line: Line) -> bool:
        """The line goes on waiting for room; whether it is among the first of its queue that do."""
        return self._aisles[line.key.queue].passed()

    def _offer_first(self, gang: Gang) -> None:
        """Of the lines that ask for this, the one that comes first is worth a try: the others follow when it has been tried."""
        if not has_room(self._ledger, gang):
            del self._gangs[gang]
            return
        best: tuple[int, tuple[bool, float], Rank, Line] | None = None
        for name, entries in self._ledger.room.gangs().get(gang, {}).items():
            entry = self._aisles[name].first_new(entries)
            if entry is not None:
                found = (entry[0][0], self._order(name), *entry)
                best = found if best is None or found[:3] < best[:3] else best
        if best is not None:
            line = best[3]
            self._aisles[line.key.queue].offer(line)
            self._show(line.key.queue)

    def _order(self, name: str) -> tuple[bool, float]:
        order = self._orders.get(name)
        if order is None:
            order = self._orders[name] = rights.order(self._ledger.queue(name), self._ledger.accounts, self._now)
        return order

    def _show(self, name: str) -> None:
        rank = self._aisles[name].next()
        if rank is not None:
            heapq.heappush(self._heads, (rank[0], self._order(name), rank, name))


def has_room(ledger: Ledger, gang: Gang) -> bool:
    """Whether each of its tasks alone would find a place, so many of them. Quick, and generous."""
    return all(ledger.cluster.room(part.shape) >= part.least for part in gang.parts)
