"""What comes with a submit besides the document, and where it is kept until the run starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fairway.spec.job import TrainingJob
from fairway.state.job import Job, Origin


@dataclass(frozen=True, slots=True)
class Submission:
    """One document and where it came from."""

    document: TrainingJob
    origin: Origin = Origin()
    environment: dict[str, str] | None = None
    """The caller's environment; only for runs in place. It may hold secrets and is never shown."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that the code needs besides its folder (a function sent as a job)."""


class Submissions(Protocol):
    """Keeps what a run needs from its caller: promises that when `keep` returns, the run needs the caller no more."""

    async def keep(self, job: Job, submission: Submission) -> Job:
        """Snapshot the code (or note its digest), keep environment and files; the run with its origin completed."""
        ...
