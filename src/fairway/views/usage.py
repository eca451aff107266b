"""What the tasks of one run use now: `fairway top job NAME`. Pure: (state, what was seen) to views and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fairway.state.job import Job
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task, TaskKey
from fairway.units import number, quantity
from fairway.units.card import View
from fairway.units.roles import leader
from fairway.views import phrases
from fairway.views.job import JobView
from fairway.views.listing import short_device
from fairway.views.metric import Point
from fairway.views.table import Column, Page, table

Used = tuple[float | None, int | None, float | None]
_RECENT = 5
"""Reports that a speed is taken over; old curves are thin, so that more of them would reach far back."""


class TaskUsageView(View, frozen=True):
    """One task: what it uses, of what it holds."""

    name: str
    phase: TaskPhase
    cpu: float
    """Cores that it holds."""
    cpu_used: float | None
    """Cores that it uses; None when it does not run."""
    memory: int
    """Bytes that it holds; 0 when it asked for none."""
    memory_used: int | None
    devices: tuple[str, ...] = ()
    gpu_used: float | None = None
    """The part of the time in which its devices compute, for whomever; None when nobody says."""
    step: int | None = None
    steps_per_second: float | None = None
    """As the run's own for the task that speaks for it, else over its last reports; None for one that reports nothing."""


class UsageList(View, frozen=True):
    """The tasks of one run."""

    name: str
    phase: JobPhase
    tasks: tuple[TaskUsageView, ...]


def with_use(job: JobView, used: Mapping[str, Used]) -> JobView:
    """The run with what its tasks use, by name, as (cores, bytes, part of its GPUs)."""
    if not isinstance(job.tasks, tuple):
        return job
    tasks = tuple(
        msgspec.structs.replace(task, cpu_used=found[0], memory_used=found[1], gpu_used=found[2])
        if (found := used.get(task.name))
        else task
        for task in job.tasks
    )
    return msgspec.structs.replace(job, tasks=tasks)


def usage_list(job: Job, tasks: Sequence[Task], used: Mapping[TaskKey, Used], points: Iterable[Point]) -> UsageList:
    """The tasks with what was seen of each, as (cores, bytes, part of its GPUs), and the points of the run in order of time."""
    speaker = job.progress.speaker or leader(tuple(job.spec.roles))
    told: dict[str, list[tuple[float, int]]] = {}
    for point in points:
        if point.step is not None:
            told.setdefault(point.task, []).append((point.time, point.step))
    found = []
    for task in tasks:
        steps = told.get(task.key.task, [])
        step, speed = (steps[-1][1] if steps else None), _speed(steps)
        if task.key.task == speaker:
            step, speed = job.progress.step, job.progress.steps_per_second
        found.append(_task(task, used.get(task.key), step, speed))
    return UsageList(job.key.name, job.phase, tuple(found))


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
    # A restart takes the steps back; the next reports will tell.
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


def usage_text(usage: UsageList, page: Page = Page()) -> str:
    """One line a task: used of held."""
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
        phrases.measure(task.steps_per_second) if task.steps_per_second else "",
    ]
