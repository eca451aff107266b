"""What a scheduler decides. Words for people are made from these elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fairway.plan.scheduling.shape import Seat, Shortfall
from fairway.state.job import JobKey


@dataclass(frozen=True, slots=True)
class Start:
    """Give a run these places, all of them."""

    key: JobKey
    seats: tuple[Seat, ...]


class Cause(StrEnum):
    """Why a run must make room."""

    PRIORITY = "priority"
    """Somebody more urgent needs its places."""
    RECLAIM = "reclaim"
    """It used what belongs to another queue."""
    SLICE = "time-slice"
    """Its turn is over; runs that have had less wait."""
    SHRINK = "shrink"
    """It goes on with fewer tasks."""
    GROW = "grow"
    """It goes on with more tasks."""
    MOVE = "move"
    """It goes on elsewhere, so that free places lie together."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask a run to save and leave; it waits again and goes on later."""

    key: JobKey
    cause: Cause
    to_whom: JobKey | None = None
    """For whom the room is."""
    sizes: tuple[tuple[str, int], ...] = ()
    """At most so many replicas a role when it starts again; empty: as the document says."""
    service: str = ""
    """The service for whose replica the room is; empty for a job."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What keeps a run waiting though there may be room: a rule of its queue."""

    what: str
    """The resource, or `runs`."""
    of: str
    """`quota` or `per_user`."""
    asked: int
    used: int
    allowed: int
    queue: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class Behind:
    """There is room, and it is kept for somebody who came first."""

    key: JobKey
    at: float | None = None
    """When that one is expected to start."""


Obstacle = Shortfall | Limit | Behind


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision, to be carried out."""

    starts: tuple[Start, ...] = ()
    evictions: tuple[Evict, ...] = ()
    wake_at: float | None = None
    """Decide again then, even if nothing is heard."""

    @property
    def empty(self) -> bool:
        """Whether nothing is to be done."""
        return not (self.starts or self.evictions)


@dataclass(slots=True)
class Drafting:
    """A decision in the making."""

    starts: list[Start] = field(default_factory=list)
    evictions: list[Evict] = field(default_factory=list)
    wake_at: float | None = None

    @property
    def size(self) -> int:
        """How much is to be done so far."""
        return len(self.starts) + len(self.evictions)

    def wake(self, at: float) -> None:
        """Decide again at this time, or before."""
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)

    def finish(self) -> Decision:
        """The decision."""
        return Decision(tuple(self.starts), tuple(self.evictions), self.wake_at)
