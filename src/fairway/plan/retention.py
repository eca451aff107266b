"""How long things stay after a run has ended: its document says so."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.state.job import Job
from fairway.units import quantity

FOREVER = "forever"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """When parts of a run may go; None: never, or not known yet."""

    logs: float | None = None
    record: float | None = None


def deadlines(job: Job) -> Deadlines:
    """When the logs of a run, and all of it, are to be forgotten."""
    if not job.phase.over or job.finished is None:
        return Deadlines()
    keep = job.spec.keep
    return Deadlines(None if job.logs_gone else _after(job.finished, keep.logs), _after(job.finished, keep.record))


def _after(finished: float, span: str) -> float | None:
    return None if span == FOREVER else finished + quantity.seconds(span)
