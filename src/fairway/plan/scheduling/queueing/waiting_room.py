"""The waiting room: runs with equal requests in the same queue form one line, so that only its first run is tried.

The lines of a queue are kept sorted in order of service, so that the first one is found without a scan.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, KeysView, ValuesView
from dataclasses import dataclass, field

from fairway.plan.scheduling import resource_amount
from fairway.plan.scheduling.gang import GangShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.resource_amount import Amounts
from fairway.state.job import JobKey


@dataclass(frozen=True, slots=True)
class WaitingLineKey:
    """The properties that runs of one line share, so that they wait for the same reason."""

    queue: str
    gang: GangShape
    user: str = ""
    """Set only where the queue has limits for each user."""
    priority: int = 0
    level: int = 0
    """The time-slice level of their service; 0 where the queue is not time-sliced."""
    beside: JobKey | None = None
    """Set for a run with placed tasks: it has a line of its own, because its other tasks depend on their places."""
    replica: bool = False
    """Whether they are replicas of services, which may not preempt all runs that a job of their priority may preempt."""


Rank = tuple[int, int, float, JobKey]


class RequestKind:
    """All lines with equal requests, by queue, in order of service."""

    __slots__ = ("aisles", "devices", "futile", "gang")

    def __init__(self, gang: GangShape) -> None:
        self.gang = gang
        self.devices = tuple((part.shape.gpus, part.shape.gpu_milli, part.shape.gpu_types) for part in gang.parts)
        """The requested devices, by part: number, thousandths of each, types."""
        self.aisles: dict[str, list[Entry]] = {}
        self.futile: object = None
        """The walk that found that this kind does not fit; see `Walk.give_up`."""


@dataclass(slots=True, eq=False)
class WaitingLine:
    """Runs with equal requests, first come first."""

    key: WaitingLineKey
    kind: RequestKind
    order: list[tuple[float, JobKey]] = field(default_factory=list)
    """A heap by submission; may contain entries of runs that have left the line."""
    brief: list[tuple[float, float, JobKey]] = field(default_factory=list)
    """A heap of the runs with a declared limit, the shortest first; may also contain stale entries."""
    members: dict[JobKey, GangRequest] = field(default_factory=dict)
    filed: Rank | None = None
    """The rank under which the room has sorted it; None when it has no runs."""
    rule: tuple[str, str] | None = None
    """The known limit that blocks it, as queue and user."""
    mistyped: bool = False
    """Whether a limit forbade the places that were found the last time, because of their GPU type."""
    asked: Amounts | None = None
    """Cache of `asks`."""

    def asks(self) -> Amounts:
        """Return the minimum request of its gang. Must not be modified."""
        if self.asked is None:
            self.asked = resource_amount.of_gang(self.key.gang)
        return self.asked

    def first(self) -> GangRequest | None:
        """Return the run that is served next."""
        while self.order:
            submitted, key = self.order[0]
            request = self.members.get(key)
            if request is not None and request.submitted == submitted:
                return request
            heapq.heappop(self.order)
        return None

    def in_order(self) -> Iterator[GangRequest]:
        """Yield the runs in order of service. The first one is cheap to find; the others are sorted on demand."""
        head = self.first()
        if head is not None:
            yield head
            rest = (request for request in self.members.values() if request.key != head.key)
            yield from sorted(rest, key=lambda request: (request.submitted, request.key))

    def briefest(self) -> GangRequest | None:
        """Return the run with the shortest declared limit; None when no run has one."""
        while self.brief:
            limit, _, key = self.brief[0]
            request = self.members.get(key)
            if request is not None and request.limit == limit:
                return request
            heapq.heappop(self.brief)
        return None

    def rank(self) -> Rank:
        """Return its rank within its queue: by priority, then level of service, then age."""
        head = self.first()
        assert head is not None
        return (-self.key.priority, self.key.level, head.submitted, head.key)


Entry = tuple[Rank, WaitingLine]


class WaitingRoom:
    """All lines of waiting runs."""

    def __init__(self) -> None:
        self._lines: dict[WaitingLineKey, WaitingLine] = {}
        self._where: dict[JobKey, WaitingLine] = {}
        self._queues: dict[str, list[Entry]] = {}
        self._kinds: dict[GangShape, RequestKind] = {}
        self._fresh: dict[WaitingLineKey, WaitingLine] = {}
        self._watched: dict[str, Rank] = {}
        self.unsettled: set[str] = set()
        """Queues whose watched first lines have changed; other modules may add to it."""

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, key: JobKey) -> bool:
        return key in self._where

    def get(self, key: JobKey) -> GangRequest | None:
        """Return the run's request; None when it does not wait."""
        line = self._where.get(key)
        return line.members[key] if line is not None else None

    def line_of(self, key: JobKey) -> WaitingLineKey | None:
        """Return the key of the run's line; None when it does not wait."""
        line = self._where.get(key)
        return line.key if line is not None else None

    def line_at(self, key: JobKey) -> WaitingLine | None:
        """Return the run's line; None when it does not wait."""
        return self._where.get(key)

    def add(self, request: GangRequest, line_key: WaitingLineKey) -> None:
        """Add a run to a line; a run in another line is moved."""
        before = self._where.get(request.key)
        if before is not None and before.key == line_key and before.members[request.key].submitted == request.submitted:
            self._change(before, request)
            return
        self.remove(request.key)
        line = self._lines.get(line_key)
        if line is None:
            kind = self._kinds.get(line_key.gang)
            if kind is None:
                kind = self._kinds[line_key.gang] = RequestKind(line_key.gang)
            line = self._lines[line_key] = self._fresh[line_key] = WaitingLine(line_key, kind)
        line.members[request.key] = request
        heapq.heappush(line.order, (request.submitted, request.key))
        if request.limit is not None:
            heapq.heappush(line.brief, (request.limit, request.submitted, request.key))
        self._where[request.key] = line
        self._file(line)

    def _change(self, line: WaitingLine, request: GangRequest) -> None:
        before, line.members[request.key] = line.members[request.key], request
        if request.limit is not None and request.limit != before.limit:
            heapq.heappush(line.brief, (request.limit, request.submitted, request.key))

    def remove(self, key: JobKey) -> None:
        """Remove a run from its line."""
        line = self._where.pop(key, None)
        if line is None:
            return
        del line.members[key]
        if not line.members:
            del self._lines[line.key]
            self._fresh.pop(line.key, None)
        self._file(line)

    def _file(self, line: WaitingLine) -> None:
        rank = line.rank() if line.members else None
        if rank == line.filed:
            return
        if any(entry_rank is not None and self._is_watched(line.key.queue, entry_rank) for entry_rank in (rank, line.filed)):
            self.unsettled.add(line.key.queue)
        aisles = line.kind.aisles
        shelves = (self._queues.setdefault(line.key.queue, []), aisles.setdefault(line.key.queue, []))
        for shelf in shelves:
            if line.filed is not None:
                del shelf[bisect_left(shelf, (line.filed,))]
            if rank is not None:
                insort(shelf, (rank, line))
        line.filed = rank
        if not shelves[0]:
            del self._queues[line.key.queue]
        if not shelves[1]:
            del aisles[line.key.queue]
            if not aisles:
                del self._kinds[line.key.gang]

    def watch(self, queue: str, last: Rank | None) -> None:
        """Start to record changes among the queue's lines up to this rank (None: all lines) in `unsettled`."""
        self.unsettled.discard(queue)
        if last is None:
            self._watched.pop(queue, None)
        else:
            self._watched[queue] = last

    def _is_watched(self, queue: str, rank: Rank) -> bool:
        last = self._watched.get(queue)
        return last is None or rank <= last

    def refresh(self, queue: str) -> None:
        """Drop the cached results for the lines of this queue."""
        self.unsettled.add(queue)
        for _, line in self._queues.get(queue, ()):
            line.rule = None
            self._fresh[line.key] = line

    def take_fresh(self) -> list[WaitingLine]:
        """Return the lines that are new since the last call."""
        lines = list(self._fresh.values())
        self._fresh.clear()
        return lines

    def keys(self) -> KeysView[JobKey]:
        """Return the keys of all waiting runs."""
        return self._where.keys()

    def queues(self) -> KeysView[str]:
        """Return the queues with waiting runs."""
        return self._queues.keys()

    def in_order(self, queue: str) -> list[Entry]:
        """Return the lines of a queue in order of service. A live view; must not be modified."""
        return self._queues.get(queue, [])

    def kinds(self) -> ValuesView[RequestKind]:
        """Return the lines grouped by equal requests."""
        return self._kinds.values()

    @property
    def line_count(self) -> int:
        """Number of lines."""
        return len(self._lines)

    def lines(self) -> Iterator[WaitingLine]:
        """Return an iterator over all lines; none is empty."""
        return iter(self._lines.values())

    def requests(self, queue: str = "") -> list[GangRequest]:
        """Return all requests, or those of one queue."""
        return [
            request for line in self._lines.values() if not queue or line.key.queue == queue for request in line.members.values()
        ]

    def ahead_of(self, key: JobKey) -> int:
        """Return how many runs of its queue are currently ahead of it."""
        line = self._where[key]
        own = line.members[key]
        own_rank = (-line.key.priority, line.key.level, own.submitted, own.key)
        count = 0
        for _, other in self.in_order(line.key.queue):
            base = (-other.key.priority, other.key.level)
            if base <= own_rank[:2]:
                count += sum((*base, request.submitted, request.key) < own_rank for request in other.members.values())
        return count
