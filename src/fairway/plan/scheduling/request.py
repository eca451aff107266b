"""Who asks: gangs that wait and gangs that run, as the scheduler sees them."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.plan.scheduling.shape import Gang, Seat
from fairway.state.job import JobKey

HEAD_START = 100
"""So much of a replica's priority counts among those who wait, and over runs that lose no more than a moment's work. Over a run
that would lose all of its work it does not count: there a service has the rights of a job."""


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
    service: str = ""
    """The service whose replica it is; empty for a job."""

    @property
    def claim(self) -> int:
        """The priority that counts over a run that would lose all of its work."""
        return self.priority - HEAD_START if self.service else self.priority

    @property
    def loses_all(self) -> bool:
        """Whether all its work is lost when it leaves: it has saved nothing. A replica has no work that could be lost."""
        return not self.resumes and not self.service


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
