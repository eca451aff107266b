"""What is, after an engine has told what it sees. The only place where observed facts become state."""

from __future__ import annotations

from dataclasses import replace

from fairway.state.job import Job, Progress
from fairway.state.phase import TASK_MOVES, TaskPhase
from fairway.state.task import Task, TaskReport


def fold_report(task: Task, report: TaskReport) -> Task:
    """The task after the report. A report that would be an illegal move changes nothing: facts come late and twice."""
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


def fold_progress(job: Job, speaker: str, points: list[tuple[float, int | None, dict[str, float]]]) -> Job:
    """The run after new reports of the task that speaks for it, given as (time, step, metrics) in order of time."""
    progress = job.progress if job.progress.speaker == speaker else replace(job.progress, speaker=speaker)
    for time, step, metrics in points:
        progress = _advance(progress, time, step, metrics)
    return job if progress is job.progress else replace(job, progress=progress)


def fold_checkpoint(job: Job, step: int, time: float | None) -> Job:
    """The run after a checkpoint was seen."""
    if job.progress.checkpoint_step == step:
        return job
    return replace(job, progress=replace(job.progress, checkpoint_step=step, checkpoint_time=time))


def _advance(progress: Progress, time: float, step: int | None, metrics: dict[str, float]) -> Progress:
    speed, before, since = progress.steps_per_second, progress.step, progress.time
    if step is not None and before is not None and since is not None and time > since and step > before:
        latest = (step - before) / (time - since)
        # Smoothed, so that one slow step does not make the figure jump.
        speed = latest if speed is None else 0.7 * speed + 0.3 * latest
    return replace(
        progress,
        step=progress.step if step is None else step,
        time=time,
        metrics={**progress.metrics, **metrics},
        steps_per_second=speed,
    )
