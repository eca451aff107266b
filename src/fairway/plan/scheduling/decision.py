"""The scheduler's decisions as values. `explain` turns them into text for users."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fairway.plan.scheduling.gang import CapacityShortfall, TaskSeat
from fairway.state.job import JobKey


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Start a run on these seats, all of them."""

    key: JobKey
    seats: tuple[TaskSeat, ...]


class EvictionCause(StrEnum):
    """Why a run is evicted."""

    PRIORITY = "priority"
    """A run of higher priority needs its places."""
    RECLAIM = "reclaim"
    """Its queue borrowed resources that another queue reclaims."""
    SLICE = "time-slice"
    """Its time slice is over, and runs with less service wait."""
    SHRINK = "shrink"
    """It continues with fewer tasks."""
    GROW = "grow"
    """It continues with more tasks."""
    MOVE = "move"
    """It continues on other devices, so that free devices are contiguous."""


@dataclass(frozen=True, slots=True)
class EvictDecision:
    """Evict a run: it saves its state, returns to the queue and resumes later."""

    key: JobKey
    cause: EvictionCause
    to_whom: JobKey | None = None
    """The run for which the places are freed."""
    sizes: tuple[tuple[str, int], ...] = ()
    """Maximum replicas of each role at its next start; empty: as in its document."""
    service: str = ""
    """The service for whose replica the places are freed; empty for a job."""


@dataclass(frozen=True, slots=True)
class LimitObstacle:
    """A limit of the queue that keeps a run waiting, whatever is free."""

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
class ReservationObstacle:
    """The run would fit, but the places are reserved for a run that is ahead of it."""

    key: JobKey
    at: float | None = None
    """When the run ahead is expected to start."""


Obstacle = CapacityShortfall | LimitObstacle | ReservationObstacle


@dataclass(frozen=True, slots=True)
class SchedulingDecision:
    """One decision: runs to start and runs to evict."""

    starts: tuple[StartDecision, ...] = ()
    evictions: tuple[EvictDecision, ...] = ()
    wake_at: float | None = None
    """Decide again at this time even if nothing changes before."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.starts or self.evictions)


@dataclass(slots=True)
class SchedulingDraft:
    """A decision under construction."""

    starts: list[StartDecision] = field(default_factory=list)
    evictions: list[EvictDecision] = field(default_factory=list)
    wake_at: float | None = None

    @property
    def size(self) -> int:
        """Number of starts and evictions so far."""
        return len(self.starts) + len(self.evictions)

    def wake(self, at: float) -> None:
        """Request a decision at this time or earlier."""
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)

    def finish(self) -> SchedulingDecision:
        """Return the decision."""
        return SchedulingDecision(tuple(self.starts), tuple(self.evictions), self.wake_at)
