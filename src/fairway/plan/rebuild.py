"""A run's record made anew from what an engine keeps of it: the run as it was, its attempts, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.plan import gang
from fairway.state.job import Job
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task, TaskKey, TaskReport


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task, as an engine kept it."""

    key: TaskKey
    node: str = ""
    devices: tuple[str, ...] = ()


def missing(known: Sequence[Task], attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts of which the record says nothing."""
    there = {task.key for task in known}
    return [attempt for attempt in attempts if attempt.key not in there]


def tasks(job: Job, attempts: Sequence[Attempt], reports: Mapping[TaskKey, TaskReport], cpu: float) -> list[Task]:
    """The tasks of these attempts, each as its report says. Roles that the document does not have are left out."""
    made = []
    for number in sorted({attempt.key.attempt for attempt in attempts}):
        of_it = [attempt for attempt in attempts if attempt.key.attempt == number and attempt.key.role in job.spec.roles]
        sizes = gang.largest_sizes(job.spec) if gang.folds_into_one(job) else gang.smallest_sizes(job.spec)
        for attempt in of_it:
            sizes[attempt.key.role] = max(sizes[attempt.key.role], attempt.key.index + 1)
        usual = {task.key: task for task in gang.make_tasks(replace(job, attempt=number), sizes, cpu, job.created)}
        made += [_as_reported(usual[one.key], one, reports.get(one.key)) for one in of_it if one.key in usual]
    return made


def job(value: Job, known: Sequence[Task]) -> Job:
    """The run in the phase that its tasks show, so that planning goes on from there; one that was over stays so."""
    if value.phase.over:
        return value
    current = [task for task in known if task.key.attempt >= value.attempt]
    begun = [task for task in current if task.phase is not TaskPhase.PENDING]
    if not begun:
        return replace(value, phase=JobPhase.PENDING, hold=None)
    started = min((task.started for task in known if task.started is not None), default=None)
    sizes = {name: len({task.key.index for task in begun if task.key.role == name}) for name in value.spec.roles}
    return replace(
        value,
        phase=JobPhase.STOPPING if value.ending is not None else JobPhase.RUNNING,
        started=value.started or started,
        sizes=value.sizes or ({} if gang.folds_into_one(value) else sizes),
        hold=None,
    )


def _as_reported(task: Task, attempt: Attempt, report: TaskReport | None) -> Task:
    if report is None or report.phase is TaskPhase.PENDING:
        return task
    return replace(
        task,
        phase=report.phase,
        ready=True,
        node=report.node or attempt.node,
        devices=report.devices or attempt.devices,
        address=report.address or "",
        started=report.started,
        finished=report.finished,
        exit=report.exit,
        message=report.message or "",
    )
