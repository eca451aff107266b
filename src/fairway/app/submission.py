"""The parts of a submit besides the document, and their storage until the run starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fairway.app.idempotency import IdempotentRequest
from fairway.spec.job import TrainingJob
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.request_receipt import RequestReceipt


@dataclass(frozen=True, slots=True)
class Submission:
    """One document and its origin."""

    document: TrainingJob
    origin: SubmissionOrigin = SubmissionOrigin()
    environment: dict[str, str] | None = None
    """The caller's environment: all of it for runs in place, the machine-specific part for others.

    It may contain secrets and is never shown.
    """
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that the code needs in addition to its folder (a function sent as a job)."""
    run: str = ""
    """The run's own name, if an object of a cluster has one already; empty: the next number of its series."""


class SubmissionStore(Protocol):
    """Stores what a run needs from its caller: after `receive` and `keep` the run no longer depends on the caller."""

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        """Check the code's folder and snapshot its content; return the origin with the digest. Refusals change nothing."""
        ...

    async def missing(self, submission: Submission, port: int = 0) -> Sequence[str]:
        """Return what the run would lack, each with its fix: code, interpreter, program, requirements, inputs; a `port` in use.

        Empty where only the engine can check.
        """
        ...

    def keep(self, key: JobKey, submission: Submission) -> None:
        """Store environment and files in the run's folder."""
        ...

    async def fingerprint(self, job: JobState) -> str:
        """Return the current digest of the folder in which a run works in place; empty if there is none."""
        ...


def written(asked: Iterable[Submission]) -> list[str]:
    """Return the content of submissions as text: documents and uploaded files, without origin and environment."""
    parts = []
    for submission in asked:
        meta = submission.document.metadata
        parts.append(f"{meta.namespace}/{meta.name} {sorted(meta.labels.items())}")
        parts.append(submission.document.spec.model_dump_json(exclude_unset=True))
        parts += [f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in sorted(submission.files.items())]
    return parts


def in_order(standing: Sequence[JobState | None], made: Sequence[JobState]) -> list[tuple[JobState, bool]]:
    """Return the run of each document, and whether it was created now: existing runs stay unchanged, the others are `made`."""
    new = iter(made)
    return [(existing, False) if existing is not None else (next(new), True) for existing in standing]


def receipt_of(
    once: IdempotentRequest, standing: Sequence[JobState | None], made: Sequence[JobState]
) -> tuple[RequestReceipt, ...]:
    """Return the receipt of a request that created the runs `made` and left the runs `standing` unchanged."""
    runs = in_order(standing or [None] * len(made), made)
    return once.receipt([job.key for job, _ in runs], [job.key for job, new in runs if not new])
