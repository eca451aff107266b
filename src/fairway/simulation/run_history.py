"""Turn the history of a Fairway installation into a queue to replay: finished runs, their requests and their run times."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.views.job import JobView, TaskView


@dataclass(frozen=True, slots=True)
class ReplayableHistory:
    """Runs that can be replayed, earliest first, and how many cannot."""

    entries: tuple[RecordedJob, ...]
    without_gpus: int = 0
    """Runs that requested no GPUs: they do not wait for GPUs, and are left out."""
    unfinished: int = 0
    """Runs that never started or are not over."""


def read_history(runs: Iterable[JobView]) -> ReplayableHistory:
    """Return the finished runs as a queue. Times count from the first submission; a share of a GPU counts as a whole one."""
    entries: list[tuple[float, RecordedJob]] = []
    without_gpus = unfinished = 0
    for run in runs:
        ran = seconds_run(run)
        if ran is None:
            unfinished += 1
        elif not run.gpus:
            without_gpus += 1
        else:
            entries.append((run.created, RecordedJob(run.created, math.ceil(run.gpus), ran, run.series, run.user)))
    first = min((created for created, _ in entries), default=0.0)
    shifted = [
        RecordedJob(entry.submitted - first, entry.gpus, entry.duration, entry.name, entry.user)
        for _, entry in sorted(entries, key=lambda pair: pair[0])
    ]
    return ReplayableHistory(tuple(shifted), without_gpus, unfinished)


def has_gaps(run: JobView) -> bool:
    """Return whether the run started more than once, so that its run time must be taken from its tasks."""
    return run.attempt > 0 or run.restarts > 0


def seconds_run(run: JobView) -> float | None:
    """Return how long the run held its places, without pauses between attempts; None if it never started or is not over."""
    if run.started is None or run.finished is None:
        return None
    spans = sorted(
        (task.started, task.finished)
        for task in (*_given(run.earlier), *_given(run.tasks))
        if task.started is not None and task.finished is not None
    )
    if not spans:
        return max(0.0, run.finished - run.started)
    total, reached = 0.0, -math.inf
    for started, finished in spans:
        total += max(0.0, finished - max(started, reached))
        reached = max(reached, finished)
    return total


def _given(tasks: object) -> tuple[TaskView, ...]:
    """Return the tasks; none if the view comes from a list of runs, which leaves them out."""
    return tasks if isinstance(tasks, tuple) else ()
