"""Fold an engine's observations into new values of runs and tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fairway.app.loop.fault_register import FaultRegister
from fairway.app.port.port import MetricPoint, Observation
from fairway.runtime.event_folder import AUTO
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.observation import fold_checkpoint, fold_progress, fold_report, fold_summaries
from fairway.state.snapshot import PlannerSnapshot
from fairway.state.task import Task, TaskReport
from fairway.units.role import leader


def folded_tasks(snapshot: PlannerSnapshot, reports: Iterable[TaskReport], faults: FaultRegister) -> list[Task]:
    """Return new values of the tasks that the reports change. A report that cannot be folded is a fault of its run."""
    changed = []
    for report in reports:
        task = snapshot.tasks.get(report.key.run, {}).get(report.key)
        if task is None:
            continue
        with faults.contain(str(report.key.run), "read report"):
            folded = fold_report(task, report)
            if folded != task:
                changed.append(folded)
    return changed


def folded_runs(
    snapshot: PlannerSnapshot, observed: Iterable[Observation], faults: FaultRegister
) -> tuple[list[JobState], list[tuple[JobKey, MetricPoint]]]:
    """Return new values of the measured runs, and their points. What cannot be folded is a fault of its run."""
    jobs: dict[JobKey, JobState] = {}
    points: list[tuple[JobKey, MetricPoint]] = []
    for observation in observed:
        before = jobs.get(observation.key) or snapshot.jobs.get(observation.key)
        if before is None:
            continue
        with faults.contain(str(observation.key), "read metrics"):
            folded = _folded(before, observation)
            points.extend((observation.key, point) for point in observation.points)
            if folded != before:
                jobs[observation.key] = folded
    return list(jobs.values()), points


class ReportingRuns:
    """Runs that have reported metrics themselves. From then on their automatically detected metrics are ignored."""

    def __init__(self) -> None:
        self._runs: set[JobKey] = set()

    def counting(self, seen: Observation) -> Observation:
        """Return the observation without points that must be ignored."""
        if any(point.source != AUTO for point in seen.points):
            self._runs.add(seen.key)
        if seen.key not in self._runs:
            return seen
        return replace(seen, points=tuple(point for point in seen.points if point.source != AUTO))

    def forget(self, key: JobKey) -> None:
        """Forget a finished run."""
        self._runs.discard(key)


def refusals(observed: Iterable[Observation], now: float) -> tuple[RunEvent, ...]:
    """Return an event for every kind of refused report."""
    return tuple(
        RunEvent(now, str(observation.key), "ReportRefused", text) for observation in observed for text in observation.refused
    )


def _folded(before: JobState, seen: Observation) -> JobState:
    speaker = _speaker(before, {point.task for point in seen.points})
    points = [point for point in seen.points if point.task in ("", speaker)]
    folded = fold_summaries(before, speaker, [(point.time, point.step, point.metrics) for point in points])
    folded = fold_progress(folded, speaker, [(point.time, _step_of(point), point.metrics) for point in points])
    if seen.removed is not None and seen.removed != before.logs_removed:
        folded = replace(folded, logs_removed=seen.removed)
    if seen.checkpoint_step is not None:
        folded = fold_checkpoint(folded, seen.checkpoint_step, seen.checkpoint_time)
    return folded


def _step_of(point: MetricPoint) -> int | None:
    """Return the step of a report; None if MLflow's client filled in 0 because the program gave none."""
    return None if point.source == "mlflow" and point.step == 0 else point.step


def _speaker(job: JobState, reporting: set[str]) -> str:
    """Return the task whose reports count: the leader as soon as it reports; until then the first task that reported.

    Not every framework makes the first task its rank 0: MXNet assigns ranks in the order of arrival.
    """
    first = leader(tuple(job.spec.roles))
    if first in reporting:
        return first
    return job.progress.speaker or min(reporting - {""}, default="")
