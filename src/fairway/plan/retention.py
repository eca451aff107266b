"""How long logs and records are kept after a run has ended, as set in its document."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.state.job import JobState
from fairway.units import quantity

FOREVER = "forever"


@dataclass(frozen=True, slots=True)
class RetentionDeadlines:
    """When parts of a run may be removed; None when never, or not known yet."""

    logs: float | None = None
    record: float | None = None


def deadlines(job: JobState) -> RetentionDeadlines:
    """Return when the logs of a run, and its whole record, are to be removed."""
    if not job.phase.over or job.finished is None:
        return RetentionDeadlines()
    keep = job.spec.keep
    return RetentionDeadlines(None if job.logs_gone else _after(job.finished, keep.logs), _after(job.finished, keep.record))


def _after(finished: float, span: str) -> float | None:
    return None if span == FOREVER else finished + quantity.seconds(span)
