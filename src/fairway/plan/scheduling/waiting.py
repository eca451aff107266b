"""The waiting room: runs that ask for the same in the same queue stand in one line, so that only its first is looked at.

The lines of a queue are kept in the order in which they are served, so that nobody looks at all of them to find the first.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, KeysView, ValuesView
from dataclasses import dataclass, field

from fairway.plan.scheduling import amounts
from fairway.plan.scheduling.amounts import Amounts
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.shape import Gang
from fairway.state.job import JobKey


@dataclass(frozen=True, slots=True)
class LineKey:
    """What makes runs wait for the same reason."""

    queue: str
    gang: Gang
    user: str = ""
    """Only where the queue has limits for each user."""
    priority: int = 0
    level: int = 0
    """How much they have had already, as a class; 0 where the queue does not rotate."""
    beside: JobKey | None = None
    """A run of which some tasks sit already stands alone: where the others may sit depends on those."""
    replica: bool = False
    """Whether they are replicas of services, to which not everybody gives way who gives way to jobs of their priority."""


Rank = tuple[int, int, float, JobKey]


class Kind:
    """All lines that ask for the same, by queue, first served first."""

    __slots__ = ("aisles", "devices", "futile", "gang")

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.devices = tuple((part.shape.gpus, part.shape.gpu_milli, part.shape.gpu_types) for part in gang.parts)
        """What it asks of devices, by part: how many, how much of each, of which types."""
        self.aisles: dict[str, list[Entry]] = {}
        self.futile: object = None
        """Whoever has found that there is no room for it may leave a mark here."""


@dataclass(slots=True, eq=False)
class Line:
    """Runs that wait for the same, first come first."""

    key: LineKey
    kind: Kind
    order: list[tuple[float, JobKey]] = field(default_factory=list)
    """A heap; may hold entries of runs that left the line."""
    brief: list[tuple[float, float, JobKey]] = field(default_factory=list)
    """Those that declared how long they run at most, the shortest first; a heap like `order`."""
    members: dict[JobKey, Request] = field(default_factory=dict)
    filed: Rank | None = None
    """Where the room has put it."""
    rule: tuple[str, str] | None = None
    """Whose limit keeps it waiting, as queue and user, as far as is known."""
    mistyped: bool = False
    """Whether a rule forbade the places that were found the last time, for the type of their GPUs."""
    asked: Amounts | None = None
    """What its gang asks for, once somebody has counted it; `asks` tells it."""

    def asks(self) -> Amounts:
        """What its gang asks for at the least. Not to be written to."""
        if self.asked is None:
            self.asked = amounts.of_gang(self.key.gang)
        return self.asked

    def first(self) -> Request | None:
        """The run that is served next."""
        while self.order:
            submitted, key = self.order[0]
            request = self.members.get(key)
            if request is not None and request.submitted == submitted:
                return request
            heapq.heappop(self.order)
        return None

    def in_order(self) -> Iterator[Request]:
        """The runs in the order in which they are served. Finding the first costs little, the others more."""
        head = self.first()
        if head is not None:
            yield head
            rest = (request for request in self.members.values() if request.key != head.key)
            yield from sorted(rest, key=lambda request: (request.submitted, request.key))

    def briefest(self) -> Request | None:
        """The run that declared the shortest limit; None when none did."""
        while self.brief:
            limit, _, key = self.brief[0]
            request = self.members.get(key)
            if request is not None and request.limit == limit:
                return request
            heapq.heappop(self.brief)
        return None

    def rank(self) -> Rank:
        """Its place among the lines of its queue: priority, then who had less, then age."""
        head = self.first()
        assert head is not None
        return (-self.key.priority, self.key.level, head.submitted, head.key)


Entry = tuple[Rank, Line]


class WaitingRoom:
    """All lines."""

    def __init__(self) -> None:
        self._lines: dict[LineKey, Line] = {}
        self._where: dict[JobKey, Line] = {}
        self._queues: dict[str, list[Entry]] = {}
        self._kinds: dict[Gang, Kind] = {}
        self._fresh: dict[LineKey, Line] = {}
        self._watched: dict[str, Rank] = {}
        self.unsettled: set[str] = set()
        """Queues among whose first lines, as far as they are watched, something has changed; others may add to it."""

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, key: JobKey) -> bool:
        return key in self._where

    def get(self, key: JobKey) -> Request | None:
        """The run's request, when it waits."""
        line = self._where.get(key)
        return line.members[key] if line is not None else None

    def line_of(self, key: JobKey) -> LineKey | None:
        """Where it stands."""
        line = self._where.get(key)
        return line.key if line is not None else None

    def line_at(self, key: JobKey) -> Line | None:
        """The line itself."""
        return self._where.get(key)

    def add(self, request: Request, line_key: LineKey) -> None:
        """Stand in line; a run that stands elsewhere changes over."""
        before = self._where.get(request.key)
        if before is not None and before.key == line_key and before.members[request.key].submitted == request.submitted:
            self._change(before, request)
            return
        self.remove(request.key)
        line = self._lines.get(line_key)
        if line is None:
            kind = self._kinds.get(line_key.gang)
            if kind is None:
                kind = self._kinds[line_key.gang] = Kind(line_key.gang)
            line = self._lines[line_key] = self._fresh[line_key] = Line(line_key, kind)
        line.members[request.key] = request
        heapq.heappush(line.order, (request.submitted, request.key))
        if request.limit is not None:
            heapq.heappush(line.brief, (request.limit, request.submitted, request.key))
        self._where[request.key] = line
        self._file(line)

    def _change(self, line: Line, request: Request) -> None:
        before, line.members[request.key] = line.members[request.key], request
        if request.limit is not None and request.limit != before.limit:
            heapq.heappush(line.brief, (request.limit, request.submitted, request.key))

    def remove(self, key: JobKey) -> None:
        """Leave."""
        line = self._where.pop(key, None)
        if line is None:
            return
        del line.members[key]
        if not line.members:
            del self._lines[line.key]
            self._fresh.pop(line.key, None)
        self._file(line)

    def _file(self, line: Line) -> None:
        rank = line.rank() if line.members else None
        if rank == line.filed:
            return
        if any(each is not None and self._is_watched(line.key.queue, each) for each in (rank, line.filed)):
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
        """From now on it is noted whether anything changes among the lines of the queue up to this rank; None: any of them."""
        self.unsettled.discard(queue)
        if last is None:
            self._watched.pop(queue, None)
        else:
            self._watched[queue] = last

    def _is_watched(self, queue: str, rank: Rank) -> bool:
        last = self._watched.get(queue)
        return last is None or rank <= last

    def refresh(self, queue: str) -> None:
        """Whatever was known of the lines of this queue counts no longer."""
        self.unsettled.add(queue)
        for _, line in self._queues.get(queue, ()):
            line.rule = None
            self._fresh[line.key] = line

    def take_fresh(self) -> list[Line]:
        """The lines that are new since one last asked."""
        found = list(self._fresh.values())
        self._fresh.clear()
        return found

    def keys(self) -> KeysView[JobKey]:
        """Who waits."""
        return self._where.keys()

    def queues(self) -> KeysView[str]:
        """The queues in which somebody waits."""
        return self._queues.keys()

    def in_order(self, queue: str) -> list[Entry]:
        """The lines of a queue, first served first. A view: not to be written to; it changes with the room."""
        return self._queues.get(queue, [])

    def kinds(self) -> ValuesView[Kind]:
        """The lines by what they ask for."""
        return self._kinds.values()

    @property
    def line_count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def lines(self) -> Iterator[Line]:
        """Every line; none is empty."""
        return iter(self._lines.values())

    def requests(self, queue: str = "") -> list[Request]:
        """Every request, or those of one queue."""
        return [
            request for line in self._lines.values() if not queue or line.key.queue == queue for request in line.members.values()
        ]

    def ahead_of(self, key: JobKey) -> int:
        """How many runs of its queue are served before it, as things stand."""
        line = self._where[key]
        own = line.members[key]
        mine = (-line.key.priority, line.key.level, own.submitted, own.key)
        count = 0
        for _, other in self.in_order(line.key.queue):
            base = (-other.key.priority, other.key.level)
            if base <= mine[:2]:
                count += sum((*base, each.submitted, each.key) < mine for each in other.members.values())
        return count
