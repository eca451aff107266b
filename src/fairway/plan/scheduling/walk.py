"""The waiting lines in the order in which they are served, without looking at those for whom nothing has changed."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from enum import Enum

from fairway.plan.scheduling import rights
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.shape import Gang
from fairway.plan.scheduling.waiting import Entry, Kind, Line, Rank


class Hope(Enum):
    """Whether a line is worth a try."""

    NONE = 0
    KIND = 1
    """As long as there is room for its kind."""
    OWN = 2
    """In any case."""


_Head = tuple[int, tuple[bool, float], Rank, str]


class _Aisle:
    """One queue: its first lines in order, as far as they matter, and beyond them those that are worth a try."""

    def __init__(self, name: str, front: list[Entry], depth: int) -> None:
        self._name = name
        self._front = front
        self._depth = depth
        self._at = 0
        self._passed = 0
        self._eager: list[Entry] = []
        self._certain: dict[Rank, Line] = {}
        """Those of them that are worth a try even if there is no room for their kind."""
        self.limited: list[Line] = []
        """Lines that a rule keeps waiting: the first of those that were left out for that."""

    def offer(self, line: Line) -> None:
        """The line is worth a try."""
        if line.filed is not None:
            self._certain[line.filed] = line
            heapq.heappush(self._eager, (line.filed, line))

    def offer_kind(self, kind: Kind) -> None:
        """The lines of this kind are worth a try, one after the other, as long as there is room for it."""
        heapq.heappush(self._eager, kind.aisles[self._name][0])

    def follow(self, line: Line, rank: Rank) -> None:
        """The next line of the same kind is worth a try, too."""
        lines = line.kind.aisles.get(self._name, [])
        at = bisect_left(lines, (rank,))
        if at < len(lines) and lines[at][0] == rank:
            at += 1
        if at < len(lines):
            heapq.heappush(self._eager, lines[at])

    def keep_certain(self) -> None:
        """There is no room for any kind."""
        self._eager = [entry for entry in self._certain.items() if entry[1].filed == entry[0]]
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
            alive = line.kind.futile is not walk
            if rank == line.filed and line.rule is None and (alive or rank in self._certain):
                break
            heapq.heappop(eager)
            if alive and line.rule is not None:
                self.follow(line, rank)
        if self._passed < self._depth and self._at < len(front):
            rank = front[self._at][0]
            return rank if not eager or rank < eager[0][0] else eager[0][0]
        return eager[0][0] if eager else None

    def pop(self, rank: Rank) -> tuple[Line, Hope]:
        """That line, and whether it is worth a try."""
        front, eager = self._front, self._eager
        if self._passed < self._depth and self._at < len(front) and front[self._at][0] == rank:
            line = front[self._at][1]
            self._at += 1
        else:
            line = eager[0][1]
        hope = Hope.NONE
        while eager and eager[0][0] == rank:
            heapq.heappop(eager)
            hope = Hope.KIND
        return line, Hope.OWN if self._certain.pop(rank, None) is not None else hope

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
        self._aisles = {name: _Aisle(name, ledger.room.in_order(name), depth) for name in ledger.room.queues()}
        self._orders: dict[str, tuple[bool, float]] = {}
        self._hopeful = set(kinds)
        for kind in self._hopeful:
            for name in kind.aisles:
                self._aisles[name].offer_kind(kind)
        for line in eager:
            if line.filed is not None:
                self._aisles[line.key.queue].offer(line)
        self._heads = [head for name in self._aisles if (head := self._head(name)) is not None]
        heapq.heapify(self._heads)

    def __iter__(self) -> Iterator[tuple[Line, Hope]]:
        while self._heads:
            head: _Head | None = heapq.heappop(self._heads)
            assert head is not None
            name = head[3]
            aisle = self._aisles[name]
            # Most often the next line is of the same queue again.
            while head is not None and (not self._heads or head <= self._heads[0]):
                if aisle.next(self) == head[2]:
                    yield aisle.pop(head[2])
                head = self._head(name)
            if head is not None:
                heapq.heappush(self._heads, head)

    def limited(self) -> list[Line]:
        """The first lines of each queue that were left out because a rule keeps them waiting."""
        return [line for name in sorted(self._aisles) for line in self._aisles[name].limited]

    def started(self, line: Line, rank: Rank) -> None:
        """The first of the line has started; the line comes again with its next."""
        self._orders.pop(line.key.queue, None)
        if line.kind in self._hopeful:
            self._aisles[line.key.queue].follow(line, rank)
        self._aisles[line.key.queue].started(line, rank)

    def follow(self, line: Line) -> None:
        """It was tried in vain; others of its kind may have more luck."""
        if line.kind in self._hopeful and line.filed is not None:
            self._aisles[line.key.queue].follow(line, line.filed)

    def give_up(self, kind: Kind) -> None:
        """There is no room for this kind: none of its lines is worth a try only for its sake."""
        if kind not in self._hopeful:
            return
        kind.futile = self
        self._hopeful.remove(kind)
        if not self._hopeful:
            for aisle in self._aisles.values():
                aisle.keep_certain()

    def passed(self, line: Line) -> bool:
        """The line goes on waiting for room; whether it is among the first of its queue that do."""
        return self._aisles[line.key.queue].passed()

    def _head(self, name: str) -> _Head | None:
        rank = self._aisles[name].next(self)
        if rank is None:
            return None
        order = self._orders.get(name)
        if order is None:
            order = self._orders[name] = rights.order(self._ledger.queue(name), self._ledger.accounts, self._now)
        return (rank[0], order, rank, name)


def has_room(ledger: Ledger, gang: Gang) -> bool:
    """Whether each of its tasks alone would find a place, so many of them. Quick, and generous."""
    return all(ledger.cluster.room(part.shape) >= part.least for part in gang.parts)
