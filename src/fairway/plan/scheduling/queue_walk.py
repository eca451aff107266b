"""Iterate over the waiting lines in order of service, skipping lines for which nothing has changed."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from operator import itemgetter

from fairway.plan.scheduling.gang import GangShape
from fairway.plan.scheduling.queue_front import QueueFront
from fairway.plan.scheduling.queueing import queue_rule
from fairway.plan.scheduling.queueing.waiting_room import Entry, Rank, RequestKind, WaitingLine
from fairway.plan.scheduling.scheduler_state import SchedulerState


class TryReason(Enum):
    """Whether a line is worth a try."""

    NONE = 0
    KIND = 1
    """Only while its kind may fit."""
    OWN = 2
    """Regardless of its kind."""


_Head = tuple[int, tuple[bool, float], Rank, str]


class _QueueCursor:
    """One queue: its first `depth` lines in order, and beyond them the lines that are worth a try."""

    def __init__(self, name: str, front: list[Entry], depth: int, eager: list[Entry], settled: QueueFront | None) -> None:
        self._name = name
        self._front = front
        self._depth = depth
        self._at = 0
        self._passed = 0
        self._eager = eager
        """Heap of the lines that are worth a try."""
        self._certain: dict[Rank, WaitingLine] = {}
        """Eager lines that are worth a try even if their kind does not fit."""
        self.settled = settled
        """The cached first lines, when still valid: then only lines that are worth a try are visited."""
        self.replayed: tuple[Rank, tuple[bool, float]] | None = None
        """After a start invalidated `settled`: the rank up to which lines are visited late, and the queue's order key before."""
        self.blocked: list[Entry] = []
        """The first visited lines that stay blocked for lack of places."""
        self._limited: dict[Rank, WaitingLine] = {}
        """Lines blocked by a limit."""

    def offer(self, line: WaitingLine) -> None:
        """Mark the line as worth a try."""
        if line.filed is not None:
            self._certain[line.filed] = line
            heapq.heappush(self._eager, (line.filed, line))

    def follow(self, line: WaitingLine, rank: Rank) -> None:
        """Mark the next line of the same kind as worth a try."""
        lines = line.kind.aisles.get(self._name, [])
        at = bisect_left(lines, (rank,))
        if at < len(lines) and lines[at][0] == rank:
            at += 1
        if at < len(lines):
            heapq.heappush(self._eager, lines[at])

    def keep_certain(self) -> None:
        """Keep only the certain lines, since no kind fits."""
        self._eager = [entry for entry in self._certain.items() if entry[1].filed == entry[0]]
        heapq.heapify(self._eager)

    def next(self, walk: object) -> Rank | None:
        """Return the rank of the next line. Lines blocked by a known limit are skipped."""
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

    def pop(self, rank: Rank) -> tuple[WaitingLine, TryReason]:
        """Remove and return the line of that rank, and whether it is worth a try."""
        front, eager = self._front, self._eager
        shown = self.settled is None and self._passed < self._depth
        if shown and self._at < len(front) and front[self._at][0] == rank:
            line = front[self._at][1]
            self._at += 1
        else:
            line = eager[0][1]
        hope = TryReason.NONE
        while eager and eager[0][0] == rank:
            heapq.heappop(eager)
            hope = TryReason.KIND
        return line, TryReason.OWN if self._certain.pop(rank, None) is not None else hope

    def started(self, line: WaitingLine, rank: Rank) -> None:
        """Process the start of the line's first run: the line has moved to a new rank and is offered again."""
        self._at = min(self._at, bisect_left(self._front, (rank,)))
        self.offer(line)

    def passed(self, line: WaitingLine) -> bool:
        """Record a visited line that stays blocked; return whether it is among the first `depth` and these are not cached."""
        if self.settled is not None:
            return False
        self._passed += 1
        if self._passed > self._depth:
            return False
        assert line.filed is not None
        self.blocked.append((line.filed, line))
        return True

    def limit(self, line: WaitingLine) -> None:
        """Record a visited line that a limit blocks."""
        assert line.filed is not None
        self._limited[line.filed] = line

    @property
    def limited(self) -> list[Entry]:
        """The first lines blocked by a limit, among the queue's first lines."""
        last = self.blocked[-1][0] if self.is_full() else None
        entries = [(rank, line) for rank, line in self._limited.items() if last is None or rank < last]
        return heapq.nsmallest(self._depth, entries, key=itemgetter(0))

    def its_turn(self, line: WaitingLine, hope: TryReason) -> bool:
        """Return whether the line is to be tried now. In a queue with limits, skipped lines ahead of it must be visited first."""
        if self.settled is None:
            return True
        assert line.filed is not None
        if hope is TryReason.NONE or not (self.settled.ruled and self.settled.reaches(line.filed)):
            return hope is not TryReason.NONE
        self.settled = None
        if hope is TryReason.OWN:
            self._certain[line.filed] = line
        heapq.heappush(self._eager, (line.filed, line))
        return False

    def unsettle(self, rank: Rank, order: tuple[bool, float]) -> None:
        """Drop the cached first lines if a line among them has started: other lines move up and must be visited."""
        if self.settled is not None and self.settled.reaches(rank):
            self.settled = None
            self.replayed = (rank, order)

    def is_full(self) -> bool:
        """Return whether the queue may have more lines than those visited."""
        return self._passed >= self._depth


class QueueWalk:
    """Iterates over lines, each with whether it is worth a try. A start changes the order of the remaining lines."""

    def __init__(
        self,
        ledger: SchedulerState,
        eager: Iterable[WaitingLine],
        kinds: Iterable[RequestKind],
        depth: int,
        now: float,
        settled: Mapping[str, QueueFront] | None = None,
    ) -> None:
        """`eager` are lines worth a try, and so are all lines of these `kinds`, as long as the kind fits.

        `depth`: this many blocked lines of each queue are visited even if they are not worth a try, unless the queue has an
        entry in `settled`.
        """
        self._ledger, self._now = ledger, now
        self._orders: dict[str, tuple[bool, float]] = {}
        self._began: dict[str, tuple[bool, float]] = {}
        """Order keys of queues before any of their lines started."""
        self._hopeful = set(kinds)
        self._aisles: dict[str, _QueueCursor] = {}
        for name in ledger.room.queues():
            # Lines of one kind are tried one after another, beginning with the first.
            firsts = [lines[0] for kind in self._hopeful if (lines := kind.aisles.get(name))]
            heapq.heapify(firsts)
            self._aisles[name] = _QueueCursor(name, ledger.room.in_order(name), depth, firsts, (settled or {}).get(name))
        for line in eager:
            if line.filed is not None:
                self._aisles[line.key.queue].offer(line)
        self._blocked: list[tuple[_Head, WaitingLine]] = []
        self._current: _Head | None = None
        """Position of the line visited last."""
        self._heads = [head for name in self._aisles if (head := self._head(name)) is not None]
        heapq.heapify(self._heads)

    def __iter__(self) -> Iterator[tuple[WaitingLine, TryReason]]:
        while self._heads:
            head: _Head | None = heapq.heappop(self._heads)
            assert head is not None
            name = head[3]
            aisle = self._aisles[name]
            # Usually the next line is from the same queue.
            while head is not None and (not self._heads or head <= self._heads[0]):
                if aisle.next(self) == head[2]:
                    self._current = head
                    yield aisle.pop(head[2])
                head = self._head(name)
            if head is not None:
                heapq.heappush(self._heads, head)

    def limit(self, line: WaitingLine) -> None:
        """Record that a limit blocks the line."""
        self._aisles[line.key.queue].limit(line)

    def limited(self) -> list[WaitingLine]:
        """Return the first lines of each queue that a limit blocks, by priority, queue and rank."""
        aisles = [(name, aisle.settled or aisle) for name, aisle in self._aisles.items()]
        entries = [(rank[0], name, rank, line) for name, first_lines in aisles for rank, line in first_lines.limited]
        entries.sort(key=itemgetter(0, 1, 2))
        return [line for *_, line in entries]

    def offer(self, line: WaitingLine) -> bool:
        """Mark the line as worth a try unless the walk has passed it; return whether it was marked."""
        name, rank = line.key.queue, line.filed
        if rank is None or self._current is None or (rank[0], self._order(name), rank, name) <= self._current:
            return False
        self._aisles[name].offer(line)
        head = self._head(name)
        if head is not None:
            heapq.heappush(self._heads, head)
        return True

    def started(self, line: WaitingLine, rank: Rank) -> None:
        """Process the start of the line's first run; the line is visited again with its next run."""
        name = line.key.queue
        aisle, order = self._aisles[name], self._order(name)
        del self._orders[name]
        self._began.setdefault(name, order)
        aisle.unsettle(rank, order)
        if line.kind in self._hopeful:
            aisle.follow(line, rank)
        aisle.started(line, rank)

    def its_turn(self, line: WaitingLine, hope: TryReason) -> bool:
        """Return whether the line is to be tried now: not if its result is cached, and not before lines that it may affect."""
        return self._aisles[line.key.queue].its_turn(line, hope)

    def follow(self, line: WaitingLine) -> None:
        """Offer the next line of the same kind after this one failed."""
        if line.kind in self._hopeful and line.filed is not None:
            self._aisles[line.key.queue].follow(line, line.filed)

    def give_up(self, kind: RequestKind) -> None:
        """Stop trying lines only because of this kind: it does not fit."""
        if kind not in self._hopeful:
            return
        kind.futile = self
        self._hopeful.remove(kind)
        if not self._hopeful:
            for aisle in self._aisles.values():
                aisle.keep_certain()

    def passed(self, line: WaitingLine) -> bool:
        """Record that the line stays blocked; return whether it is among the first of its queue and not cached."""
        name = line.key.queue
        aisle = self._aisles[name]
        if not aisle.passed(line):
            return False
        assert line.filed is not None
        late = aisle.replayed is not None and line.filed < aisle.replayed[0]
        order = aisle.replayed[1] if aisle.replayed is not None and late else self._order(name)
        self._blocked.append(((line.filed[0], order, line.filed, name), line))
        return True

    def blocked(self) -> list[WaitingLine]:
        """Return the first blocked lines of all queues, including cached ones, in order of service."""
        entries = list(self._blocked)
        for name, front in self.settled().items():
            order = self._began.get(name) or self._order(name)
            entries += [((rank[0], order, rank, name), line) for rank, line in front.lines]
        entries.sort(key=itemgetter(0))
        return [line for _, line in entries]

    def settled(self) -> dict[str, QueueFront]:
        """Return the queues whose cached first lines are still valid."""
        return {name: aisle.settled for name, aisle in self._aisles.items() if aisle.settled is not None}

    def seen(self) -> Iterator[tuple[str, list[Entry], list[Entry], bool]]:
        """Yield for each other queue: its blocked lines, its lines blocked by a limit, and whether it may have more lines."""
        for name, aisle in self._aisles.items():
            if aisle.settled is None:
                yield name, aisle.blocked, aisle.limited, aisle.is_full()

    def _head(self, name: str) -> _Head | None:
        rank = self._aisles[name].next(self)
        return (rank[0], self._order(name), rank, name) if rank is not None else None

    def _order(self, name: str) -> tuple[bool, float]:
        order = self._orders.get(name)
        if order is None:
            order = self._orders[name] = queue_rule.order(self._ledger.queue(name), self._ledger.accounts, self._now)
        return order


def has_room(ledger: SchedulerState, gang: GangShape) -> bool:
    """Return whether each part's tasks would fit if placed alone. A fast, optimistic check."""
    return all(ledger.cluster.room(part.shape) >= part.least for part in gang.parts)
