"""The waiting lines in the order in which they are served, without looking at those for whom nothing has changed."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from fairway.plan.scheduling import rights
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.shape import Gang
from fairway.plan.scheduling.waiting import Entry, Kind, Line, Rank

_Head = tuple[int, tuple[bool, float], Rank, str]


class _Aisle:
    """One queue: its first lines in order, as far as they matter, and beyond them those that are worth a try."""

    def __init__(self, front: list[Entry], depth: int) -> None:
        self._front = front
        self._depth = depth
        self._at = 0
        self._passed = 0
        self._eager: list[Entry] = []
        self._certain: set[Rank] = set()
        """Those of them that are worth a try even if there is no room for their kind."""
        self.limited: list[Line] = []
        """Lines that a rule keeps waiting: the first of those that were left out for that."""

    def offer(self, line: Line) -> None:
        """The line is worth a try."""
        if line.filed is not None:
            self._certain.add(line.filed)
            heapq.heappush(self._eager, (line.filed, line))

    def offer_all(self, lines: list[Entry]) -> None:
        """These lines are worth a try as long as there is room for their kind. To be called before the first is asked for."""
        self._eager.extend(lines)

    def begin(self) -> None:
        """All has been offered."""
        heapq.heapify(self._eager)

    def keep_certain(self) -> None:
        """There is no room for any kind."""
        self._eager = [entry for entry in self._eager if entry[0] in self._certain]
        heapq.heapify(self._eager)

    def next(self, walk: object) -> Rank | None:
        """The rank of the line that comes next. Those that a rule keeps waiting are left out, unless they are worth a try."""
        front, eager = self._front, self._eager
        while self._at < len(front) and front[self._at][1].rule is not None and self._passed < self._depth:
            if len(self.limited) < self._depth:
                self.limited.append(front[self._at][1])
            self._at += 1
        while eager:
            rank, line = eager[0]
            if rank == line.filed and line.rule is None and (line.kind.futile is not walk or rank in self._certain):
                break
            heapq.heappop(eager)
        if self._passed < self._depth and self._at < len(front):
            rank = front[self._at][0]
            return rank if not eager or rank < eager[0][0] else eager[0][0]
        return eager[0][0] if eager else None

    def pop(self, rank: Rank) -> tuple[Line, bool]:
        """That line, and whether it is worth a try."""
        front, eager = self._front, self._eager
        if self._passed < self._depth and self._at < len(front) and front[self._at][0] == rank:
            line = front[self._at][1]
            self._at += 1
        else:
            line = eager[0][1]
        hopeful = False
        while eager and eager[0][0] == rank:
            heapq.heappop(eager)
            hopeful = True
        return line, hopeful

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

    def __init__(self, ledger: Ledger, eager: Iterable[Line], kinds: Iterable[Kind], depth: int, now: float) -> None:
        """`eager` are lines worth a try, and so are all lines of these `kinds`, as long as there is room for them.

        `depth`: so many lines of a queue that go on waiting are shown even if they are not worth a try.
        """
        self._ledger, self._now = ledger, now
        self._aisles = {name: _Aisle(ledger.room.in_order(name), depth) for name in ledger.room.queues()}
        self._orders: dict[str, tuple[bool, float]] = {}
        self._hopeful = set(kinds)
        for kind in self._hopeful:
            for name, lines in kind.aisles.items():
                self._aisles[name].offer_all(lines)
        for line in eager:
            if line.filed is not None:
                self._aisles[line.key.queue].offer(line)
        self._heads: list[_Head] = []
        for name, aisle in self._aisles.items():
            aisle.begin()
            self._show(name)

    def __iter__(self) -> Iterator[tuple[Line, bool]]:
        while self._heads:
            _, _, rank, name = heapq.heappop(self._heads)
            aisle = self._aisles[name]
            if aisle.next(self) == rank:
                yield aisle.pop(rank)
            self._show(name)

    def limited(self) -> list[Line]:
        """The first lines of each queue that were left out because a rule keeps them waiting."""
        return [line for name in sorted(self._aisles) for line in self._aisles[name].limited]

    def started(self, line: Line, rank: Rank) -> None:
        """The first of the line has started; the line comes again with its next."""
        self._orders.pop(line.key.queue, None)
        self._aisles[line.key.queue].started(line, rank)

    def failed(self, line: Line) -> None:
        """It was tried in vain. Where there is no room for its kind, the others of the kind need not be tried."""
        if line.kind in self._hopeful and not has_room(self._ledger, line.kind.gang):
            line.kind.futile = self
            self._hopeful.remove(line.kind)
            if not self._hopeful:
                for aisle in self._aisles.values():
                    aisle.keep_certain()

    def passed(self, line: Line) -> bool:
        """The line goes on waiting for room; whether it is among the first of its queue that do."""
        return self._aisles[line.key.queue].passed()

    def _show(self, name: str) -> None:
        rank = self._aisles[name].next(self)
        if rank is None:
            return
        order = self._orders.get(name)
        if order is None:
            order = self._orders[name] = rights.order(self._ledger.queue(name), self._ledger.accounts, self._now)
        heapq.heappush(self._heads, (rank[0], order, rank, name))


def has_room(ledger: Ledger, gang: Gang) -> bool:
    """Whether each of its tasks alone would find a place, so many of them. Quick, and generous."""
    return all(ledger.cluster.room(part.shape) >= part.least for part in gang.parts)
