"""The waiting lines in the order in which they are served, without looking at those for whom nothing has changed."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from operator import itemgetter

from fairway.plan.scheduling import rights
from fairway.plan.scheduling.fronts import Front
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

    def __init__(self, name: str, front: list[Entry], depth: int, eager: list[Entry], settled: Front | None) -> None:
        self._name = name
        self._front = front
        self._depth = depth
        self._at = 0
        self._passed = 0
        self._eager = eager
        """A heap."""
        self._certain: dict[Rank, Line] = {}
        """Those of them that are worth a try even if there is no room for their kind."""
        self.settled = settled
        """The first lines, when nothing has changed for them: then only those are shown that are worth a try."""
        self.replayed: tuple[Rank, tuple[bool, float]] | None = None
        """The rank before which lines come late, and where the queue stood when it was their turn."""
        self.blocked: list[Entry] = []
        """The first lines, as far as they came and go on waiting for room."""
        self._limited: dict[Rank, Line] = {}
        """Lines that a rule keeps waiting."""

    def offer(self, line: Line) -> None:
        """The line is worth a try."""
        if line.filed is not None:
            self._certain[line.filed] = line
            heapq.heappush(self._eager, (line.filed, line))

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
        shown = self.settled is None and self._passed < self._depth
        while shown and self._at < len(front) and front[self._at][1].rule is not None:
            self._limited[front[self._at][0]] = front[self._at][1]
            self._at += 1
        while eager:
            rank, line = eager[0]
            alive = line.kind.futile is not walk
            if rank == line.filed and line.rule is None and (alive or rank in self._certain):
                break
            heapq.heappop(eager)
            if alive and line.rule is not None:
                self.follow(line, rank)
        if shown and self._at < len(front):
            rank = front[self._at][0]
            return rank if not eager or rank < eager[0][0] else eager[0][0]
        return eager[0][0] if eager else None

    def pop(self, rank: Rank) -> tuple[Line, Hope]:
        """That line, and whether it is worth a try."""
        front, eager = self._front, self._eager
        shown = self.settled is None and self._passed < self._depth
        if shown and self._at < len(front) and front[self._at][0] == rank:
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

    def passed(self, line: Line) -> bool:
        """One that came and must go on waiting; whether it is among the first of its queue, and those are not known already."""
        if self.settled is not None:
            return False
        self._passed += 1
        if self._passed > self._depth:
            return False
        assert line.filed is not None
        self.blocked.append((line.filed, line))
        return True

    def limit(self, line: Line) -> None:
        """One that came and that a rule keeps waiting."""
        assert line.filed is not None
        self._limited[line.filed] = line

    @property
    def limited(self) -> list[Entry]:
        """The first of the lines that a rule keeps waiting, among the first lines."""
        last = self.blocked[-1][0] if self.is_full() else None
        found = [(rank, line) for rank, line in self._limited.items() if last is None or rank < last]
        return heapq.nsmallest(self._depth, found, key=itemgetter(0))

    def its_turn(self, line: Line, hope: Hope) -> bool:
        """Whether the line is to be tried now. Where rules bind, those before it that were left out must come first."""
        if self.settled is None:
            return True
        assert line.filed is not None
        if hope is Hope.NONE or not (self.settled.ruled and self.settled.reaches(line.filed)):
            return hope is not Hope.NONE
        self.settled = None
        if hope is Hope.OWN:
            self._certain[line.filed] = line
        heapq.heappush(self._eager, (line.filed, line))
        return False

    def unsettle(self, rank: Rank, order: tuple[bool, float]) -> None:
        """The line of that rank has started: others move up, so that the first lines must be shown after all."""
        if self.settled is not None and self.settled.reaches(rank):
            self.settled = None
            self.replayed = (rank, order)

    def is_full(self) -> bool:
        """Whether there may be more lines than those that came."""
        return self._passed >= self._depth


class Walk:
    """Iterates over lines, each with whether it is worth a try. A start changes the order of the rest."""

    def __init__(
        self,
        ledger: Ledger,
        eager: Iterable[Line],
        kinds: Iterable[Kind],
        depth: int,
        now: float,
        settled: Mapping[str, Front] | None = None,
    ) -> None:
        """`eager` are lines worth a try, and so are all lines of these `kinds`, as long as there is room for them.

        `depth`: so many lines of a queue that go on waiting are shown even if they are not worth a try, unless they are
        among those that are `settled`.
        """
        self._ledger, self._now = ledger, now
        self._orders: dict[str, tuple[bool, float]] = {}
        self._began: dict[str, tuple[bool, float]] = {}
        """Where queues stood before any of their lines started."""
        self._hopeful = set(kinds)
        self._aisles: dict[str, _Aisle] = {}
        for name in ledger.room.queues():
            # The lines of a kind are worth a try one after the other, beginning with the first.
            firsts = [lines[0] for kind in self._hopeful if (lines := kind.aisles.get(name))]
            heapq.heapify(firsts)
            self._aisles[name] = _Aisle(name, ledger.room.in_order(name), depth, firsts, (settled or {}).get(name))
        for line in eager:
            if line.filed is not None:
                self._aisles[line.key.queue].offer(line)
        self._blocked: list[tuple[_Head, Line]] = []
        self._current: _Head | None = None
        """Where the line that came last stood."""
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
                    self._current = head
                    yield aisle.pop(head[2])
                head = self._head(name)
            if head is not None:
                heapq.heappush(self._heads, head)

    def limit(self, line: Line) -> None:
        """A rule keeps the line waiting."""
        self._aisles[line.key.queue].limit(line)

    def limited(self) -> list[Line]:
        """The first lines of each queue that a rule keeps waiting, by priority, queue and rank."""
        aisles = [(name, aisle.settled or aisle) for name, aisle in self._aisles.items()]
        found = [(rank[0], name, rank, line) for name, each in aisles for rank, line in each.limited]
        found.sort(key=itemgetter(0, 1, 2))
        return [line for *_, line in found]

    def offer(self, line: Line) -> bool:
        """The line is worth a try, unless it has had its turn; whether it has not."""
        name, rank = line.key.queue, line.filed
        if rank is None or self._current is None or (rank[0], self._order(name), rank, name) <= self._current:
            return False
        self._aisles[name].offer(line)
        head = self._head(name)
        if head is not None:
            heapq.heappush(self._heads, head)
        return True

    def started(self, line: Line, rank: Rank) -> None:
        """The first of the line has started; the line comes again with its next."""
        name = line.key.queue
        aisle, order = self._aisles[name], self._order(name)
        del self._orders[name]
        self._began.setdefault(name, order)
        aisle.unsettle(rank, order)
        if line.kind in self._hopeful:
            aisle.follow(line, rank)
        aisle.started(line, rank)

    def its_turn(self, line: Line, hope: Hope) -> bool:
        """Whether the line is to be looked at now: not if it is settled, and not before those whom that may concern."""
        return self._aisles[line.key.queue].its_turn(line, hope)

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
        """The line goes on waiting for room; whether it is among the first of its queue that do, and is not settled."""
        name = line.key.queue
        aisle = self._aisles[name]
        if not aisle.passed(line):
            return False
        assert line.filed is not None
        late = aisle.replayed is not None and line.filed < aisle.replayed[0]
        order = aisle.replayed[1] if aisle.replayed is not None and late else self._order(name)
        self._blocked.append(((line.filed[0], order, line.filed, name), line))
        return True

    def blocked(self) -> list[Line]:
        """All that go on waiting for room and are among the first of their queues, as they would have come."""
        found = list(self._blocked)
        for name, front in self.settled().items():
            order = self._began.get(name) or self._order(name)
            found += [((rank[0], order, rank, name), line) for rank, line in front.lines]
        found.sort(key=itemgetter(0))
        return [line for _, line in found]

    def settled(self) -> dict[str, Front]:
        """The queues of which the first lines are what they were."""
        return {name: aisle.settled for name, aisle in self._aisles.items() if aisle.settled is not None}

    def seen(self) -> Iterator[tuple[str, list[Entry], list[Entry], bool]]:
        """The other queues: their first lines that go on waiting, those that a rule keeps, whether there may be more."""
        for name, aisle in self._aisles.items():
            if aisle.settled is None:
                yield name, aisle.blocked, aisle.limited, aisle.is_full()

    def _head(self, name: str) -> _Head | None:
        rank = self._aisles[name].next(self)
        return (rank[0], self._order(name), rank, name) if rank is not None else None

    def _order(self, name: str) -> tuple[bool, float]:
        order = self._orders.get(name)
        if order is None:
            order = self._orders[name] = rights.order(self._ledger.queue(name), self._ledger.accounts, self._now)
        return order


def has_room(ledger: Ledger, gang: Gang) -> bool:
    """Whether each of its tasks alone would find a place, so many of them. Quick, and generous."""
    return all(ledger.cluster.room(part.shape) >= part.least for part in gang.parts)
