"""What comes with a submit besides the document, and where it is kept until the run starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fairway.spec.job import TrainingJob
from fairway.state.job import Job, JobKey, Origin


@dataclass(frozen=True, slots=True)
class Submission:
    """One document and where it came from."""

    document: TrainingJob
    origin: Origin = Origin()
    environment: dict[str, str] | None = None
    """The caller's environment; only for runs in place. It may hold secrets and is never shown."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that the code needs besides its folder (a function sent as a job)."""
    run: str = ""
    """The run's own name, where objects of a cluster have one already; empty: the next number of its series."""


class Submissions(Protocol):
    """Keeps what a run needs from its caller: promises that after `receive` and `keep` the run needs the caller no more."""

    async def receive(self, submission: Submission) -> Origin:
        """Check the code's folder and snapshot its content; the origin with the digest. Refusals change nothing."""
        ...

    def keep(self, key: JobKey, submission: Submission) -> None:
        """Keep environment and files beside the run."""
        ...

    async def fingerprint(self, job: Job) -> str:
        """The digest of a folder in which a run works in place, as it is now; empty when there is none."""
        ...
