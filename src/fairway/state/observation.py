"""Fold an engine's observations into state. This is the only place where observed facts become state."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from fairway.state.job import JobState, RunProgress
from fairway.state.metric import MOST_METRICS, summarise
from fairway.state.phase import TASK_MOVES, TaskPhase
from fairway.state.task import Task, TaskReport
from fairway.units import number


def fold_report(task: Task, report: TaskReport) -> Task:
    """Return the task after a report.

    A report of an illegal phase change has no effect, because observations may arrive late and twice.
    """
    if report.phase is not task.phase and report.phase not in TASK_MOVES[task.phase]:
        return task
    folded = replace(
        task,
        phase=report.phase,
        ready=task.ready if report.ready is None else report.ready,
        address=task.address if report.address is None else report.address,
        started=task.started if report.started is None else report.started,
        finished=task.finished if report.finished is None else report.finished,
        exit=task.exit if report.exit is None else report.exit,
        message=task.message if report.message is None else report.message,
        node=task.node if report.node is None else report.node,
        devices=task.devices if report.devices is None else report.devices,
        leave=task.leave if report.leave is None else report.leave,
    )
    if report.phase is TaskPhase.PENDING and task.phase is TaskPhase.PLACED:
        return replace(folded, node="", devices=(), address="")
    return folded


def fold_progress(job: JobState, speaker: str, points: list[tuple[float, int | None, dict[str, float]]]) -> JobState:
    """Return the run after new reports of the task that reports its progress, given as (time, step, metrics) in order of time.

    Invalid values that an engine let through are ignored: a time that is not finite, a step beyond 64 bits, a value that is not a
    number. NaN and the infinities are valid metric values.
    """
    progress = job.progress if job.progress.speaker == speaker else replace(job.progress, speaker=speaker)
    for time, step, metrics in points:
        progress = _advance(progress, time, step, metrics)
    return job if progress is job.progress else replace(job, progress=progress)


def fold_summaries(job: JobState, speaker: str, points: list[tuple[float, int | None, dict[str, float]]]) -> JobState:
    """Return the run with its metric summaries after new reports of its reporting task, each with the step that was reported.

    The summaries are reset when another task becomes the reporting one, because its steps are not comparable.
    """
    progress = job.progress
    summaries = progress.summaries if progress.speaker in ("", speaker) else {}
    return replace(job, progress=replace(progress, summaries=summarise(summaries, job.attempt, points))) if points else job


def fold_checkpoint(job: JobState, step: int, time: float | None) -> JobState:
    """Return the run after a checkpoint was seen."""
    saved = number.count(step)
    if saved is None or job.progress.checkpoint_step == saved:
        return job
    return replace(job, progress=replace(job.progress, checkpoint_step=saved, checkpoint_time=number.finite(time)))


def _advance(progress: RunProgress, time: float, step: int | None, metrics: dict[str, float]) -> RunProgress:
    now, reached = number.finite(time), number.int64(step)
    if now is None or (reached is None and step is not None):
        return progress
    valid = {name: real for name, value in metrics.items() if (real := number.real(value)) is not None}
    merged = {**progress.metrics, **valid}
    if len(merged) > MOST_METRICS:
        merged = dict(islice(merged.items(), max(MOST_METRICS, len(progress.metrics))))
    return replace(
        progress,
        step=progress.step if reached is None else reached,
        time=now,
        metrics=merged,
        steps_per_second=_speed(progress, now, reached),
    )


def _speed(progress: RunProgress, now: float, step: int | None) -> float | None:
    """Return the steps per second after one more report, smoothed so that one slow step does not make the figure jump."""
    speed, previous_step, since = progress.steps_per_second, progress.step, progress.time
    if step is None or previous_step is None or since is None or now <= since or step <= previous_step:
        return speed
    latest = number.ratio(step - previous_step, now - since)
    if latest is None:
        return speed
    return latest if speed is None else number.finite(0.7 * speed + 0.3 * latest)
