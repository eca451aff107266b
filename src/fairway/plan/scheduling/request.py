"""Who asks: gangs that wait and gangs that run, as the scheduler sees them."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.plan.scheduling.shape import Gang, Seat
from fairway.state.job import JobKey


@dataclass(frozen=True, slots=True)
class Request:
    """A run that wants places."""

    key: JobKey
    gang: Gang
    submitted: float
    queue: str = "default"
    user: str = ""
    name: str = ""
    """The series: runs of the same user and name tend to last alike."""
    priority: int = 0
    limit: float | None = None
    """The longest it may run, in seconds, as declared."""
    resumes: bool = False
    """Whether it goes on from a checkpoint after an eviction."""
    not_before: float | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A run that has its places."""

    request: Request
    seats: tuple[Seat, ...]
    since: float
    """When it got them, this time."""
    saved: float | None = None
    """When its last checkpoint was written."""
    served: float = 0.0
    """GPU-seconds (core-seconds where it has no GPU) in earlier attempts."""
    leaving: bool = False
    """Told to go; its places are not free yet."""
