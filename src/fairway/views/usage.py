"""Views of the current use by the tasks of a run: `fairway top job NAME`. Pure: (state, measurements) to views and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fairway.state.job import JobState
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task, TaskKey
from fairway.units import number, quantity
from fairway.units.notebook_card import NotebookView
from fairway.units.role import leader
from fairway.views.job import JobView
from fairway.views.list_table import short_device
from fairway.views.metric import MetricSample
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table

Used = tuple[float | None, int | None, float | None]
_RECENT = 5
"""Number of reports over which a speed is computed; old curves are thinned, so more reports would reach far back."""


class TaskUsageView(NotebookView, frozen=True):
    """A task with its use and its allocation."""

    name: str
    phase: TaskPhase
    cpu: float
    """Allocated cores."""
    cpu_used: float | None
    """Used cores; None if the task does not run."""
    memory: int
    """Allocated bytes; 0 if it requested none."""
    memory_used: int | None
    devices: tuple[str, ...] = ()
    gpu_used: float | None = None
    """Fraction of the time in which its devices compute, for any process; None if unknown."""
    step: int | None = None
    steps_per_second: float | None = None
    """The run's own speed for the task that reports its progress, else over the last reports; None without reports."""


class TaskUsageList(NotebookView, frozen=True):
    """The tasks of a run with their use."""

    name: str
    phase: JobPhase
    tasks: tuple[TaskUsageView, ...]


def with_use(job: JobView, used: Mapping[str, Used]) -> JobView:
    """Return the run with the use of its tasks, given by name as (cores, bytes, fraction of GPU time)."""
    if not isinstance(job.tasks, tuple):
        return job
    tasks = tuple(
        msgspec.structs.replace(task, cpu_used=use[0], memory_used=use[1], gpu_used=use[2])
        if (use := used.get(task.name))
        else task
        for task in job.tasks
    )
    return msgspec.structs.replace(job, tasks=tasks)


def usage_list(
    job: JobState, tasks: Sequence[Task], used: Mapping[TaskKey, Used], points: Iterable[MetricSample]
) -> TaskUsageList:
    """Return the tasks with their use, given as (cores, bytes, fraction of GPU time); `points` are in order of time."""
    speaker = job.progress.speaker or leader(tuple(job.spec.roles))
    reported: dict[str, list[tuple[float, int]]] = {}
    for point in points:
        if point.step is not None:
            reported.setdefault(point.task, []).append((point.time, point.step))
    views = []
    for task in tasks:
        steps = reported.get(task.key.task, [])
        step, speed = (steps[-1][1] if steps else None), _speed(steps)
        if task.key.task == speaker:
            step, speed = job.progress.step, job.progress.steps_per_second
        views.append(_task(task, used.get(task.key), step, speed))
    return TaskUsageList(job.key.name, job.phase, tuple(views))


def _task(task: Task, used: Used | None, step: int | None, speed: float | None) -> TaskUsageView:
    return TaskUsageView(
        name=task.key.task,
        phase=task.phase,
        cpu=task.need.cpu,
        cpu_used=used[0] if used else None,
        memory=task.need.memory,
        memory_used=used[1] if used else None,
        devices=task.devices,
        gpu_used=used[2] if used else None,
        step=step,
        steps_per_second=speed if used else None,
    )


def _speed(steps: Sequence[tuple[float, int]]) -> float | None:
    if not steps:
        return None
    (begun, first), (ended, last) = steps[-_RECENT:][0], steps[-1]
    # A restart moves the step back; a speed is known again after the next reports.
    return number.ratio(last - first, ended - begun) if ended > begun and last > first else None


_USAGE = (
    Column("TASK", always=True),
    Column("PHASE", phase=True),
    Column("CPU", right=True),
    Column("MEMORY", right=True),
    Column("GPUS", loose=True),
    Column("STEP", right=True),
    Column("STEPS/S", right=True),
)


def usage_text(usage: TaskUsageList, page: TextPage = TextPage()) -> str:
    """Return a table with one line per task: used and allocated."""
    if not usage.tasks:
        return f"{usage.name} is {usage.phase.value} and has no tasks. See: fairway why {usage.name}\n"
    return table(_USAGE, [_row(task) for task in usage.tasks], page)


def _row(task: TaskUsageView) -> list[str]:
    held = f" of {quantity.show_bytes(task.memory)}" if task.memory else ""
    return [
        task.name,
        task.phase.value,
        f"{task.cpu_used:.2f} of {quantity.show_number(round(task.cpu, 2))}" if task.cpu_used is not None else "-",
        f"{quantity.show_bytes(task.memory_used)}{held}" if task.memory_used is not None else "-",
        ",".join(short_device(name) for name in task.devices) + (f" {task.gpu_used:.0%}" if task.gpu_used is not None else ""),
        f"{task.step:,}" if task.step is not None else "",
        phrase.measure(task.steps_per_second) if task.steps_per_second else "",
    ]
