"""Waiting and running gangs as the scheduler's values."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.plan.scheduling.gang import GangShape, TaskSeat
from fairway.state.job import JobKey

HEAD_START = 100
"""Part of a replica's priority that counts in the queue and over runs that would lose little work. Over a run that would lose
all of its work it does not count: there a service has the priority of a job."""


@dataclass(frozen=True, slots=True)
class GangRequest:
    """A run that requests places."""

    key: JobKey
    gang: GangShape
    submitted: float
    queue: str = "default"
    user: str = ""
    name: str = ""
    """The series: runs of the same user and name tend to have similar durations."""
    priority: int = 0
    limit: float | None = None
    """The declared maximum run time in seconds."""
    resumes: bool = False
    """Whether it resumes from a checkpoint after an eviction."""
    not_before: float | None = None
    service: str = ""
    """The service that the replica belongs to; empty for a job."""

    @property
    def claim(self) -> int:
        """The priority that counts over a run that would lose all its work."""
        return self.priority - HEAD_START if self.service else self.priority

    @property
    def loses_all(self) -> bool:
        """Whether an eviction would lose all its work because it has saved nothing. A replica has no work to lose."""
        return not self.resumes and not self.service


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A run that holds places."""

    request: GangRequest
    seats: tuple[TaskSeat, ...]
    since: float
    """When its current stint began."""
    saved: float | None = None
    """When its last checkpoint was written."""
    served: float = 0.0
    """GPU-seconds (core-seconds where it has no GPU) in earlier attempts."""
    leaving: bool = False
    """Evicted, but its places are not free yet."""
