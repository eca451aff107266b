"""What comes with a submit besides the document, and where it is kept until the run starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fairway.app.receipt import Once
from fairway.spec.job import TrainingJob
from fairway.state.job import Job, JobKey, Origin
from fairway.state.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Submission:
    """One document and where it came from."""

    document: TrainingJob
    origin: Origin = Origin()
    environment: dict[str, str] | None = None
    """The caller's: all of it for runs in place, the machine's part for others. It may hold secrets and is never shown."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that the code needs besides its folder (a function sent as a job)."""
    run: str = ""
    """The run's own name, where objects of a cluster have one already; empty: the next number of its series."""


class Submissions(Protocol):
    """Keeps what a run needs from its caller: promises that after `receive` and `keep` the run needs the caller no more."""

    async def receive(self, submission: Submission) -> Origin:
        """Check the code's folder and snapshot its content; the origin with the digest. Refusals change nothing."""
        ...

    async def missing(self, submission: Submission, port: int = 0) -> Sequence[str]:
        """What the run would not find, each with its fix: code, interpreter, program, requirements, inputs; a `port` in use.

        Empty where only the engine knows.
        """
        ...

    def keep(self, key: JobKey, submission: Submission) -> None:
        """Keep environment and files beside the run."""
        ...

    async def fingerprint(self, job: Job) -> str:
        """The digest of a folder in which a run works in place, as it is now; empty when there is none."""
        ...


def written(asked: Iterable[Submission]) -> list[str]:
    """What submissions ask for, as text: documents and files sent along; not where from, and not in what environment."""
    found = []
    for submission in asked:
        meta = submission.document.metadata
        found.append(f"{meta.namespace}/{meta.name} {sorted(meta.labels.items())}")
        found.append(submission.document.spec.model_dump_json(exclude_unset=True))
        found += [f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in sorted(submission.files.items())]
    return found


def in_order(standing: Sequence[Job | None], made: Sequence[Job]) -> list[tuple[Job, bool]]:
    """The run of each document, and whether it was made now: runs that stand are left alone, the others are `made`."""
    new = iter(made)
    return [(known, False) if known is not None else (next(new), True) for known in standing]


def receipt_of(once: Once, standing: Sequence[Job | None], made: Sequence[Job]) -> tuple[Receipt, ...]:
    """The receipt of a request that made these runs, and left those alone that stand."""
    runs = in_order(standing or [None] * len(made), made)
    return once.receipt([job.key for job, _ in runs], [job.key for job, new in runs if not new])
