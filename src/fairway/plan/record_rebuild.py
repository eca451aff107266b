"""Rebuild a run's record from the data that an engine keeps: the run, its attempts, and the result of each attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.plan import task_expansion
from fairway.state.job import JobState
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task, TaskKey, TaskReport


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """One attempt of one task, as recorded by an engine."""

    key: TaskKey
    node: str = ""
    devices: tuple[str, ...] = ()


def missing(known: Sequence[Task], attempts: Sequence[RecordedAttempt]) -> list[RecordedAttempt]:
    """Return the attempts that the record does not contain."""
    recorded = {task.key for task in known}
    return [attempt for attempt in attempts if attempt.key not in recorded]


def tasks(job: JobState, attempts: Sequence[RecordedAttempt], reports: Mapping[TaskKey, TaskReport], cpu: float) -> list[Task]:
    """Return the tasks of these attempts with the state of their reports. Roles that the document lacks are left out."""
    rebuilt = []
    for number in sorted({attempt.key.attempt for attempt in attempts}):
        members = [attempt for attempt in attempts if attempt.key.attempt == number and attempt.key.role in job.spec.roles]
        sizes = (
            task_expansion.largest_sizes(job.spec)
            if task_expansion.folds_into_one(job)
            else task_expansion.smallest_sizes(job.spec)
        )
        for attempt in members:
            sizes[attempt.key.role] = max(sizes[attempt.key.role], attempt.key.index + 1)
        expected = {task.key: task for task in task_expansion.make_tasks(replace(job, attempt=number), sizes, cpu, job.created)}
        rebuilt += [
            _as_reported(expected[member.key], member, reports.get(member.key)) for member in members if member.key in expected
        ]
    return rebuilt


def job(value: JobState, known: Sequence[Task]) -> JobState:
    """Return the run in the phase that its tasks show, so that planning continues from there. A finished run stays unchanged."""
    if value.phase.over:
        return value
    current = [task for task in known if task.key.attempt >= value.attempt]
    placed = [task for task in current if task.phase is not TaskPhase.PENDING]
    if not placed:
        return replace(value, phase=JobPhase.PENDING, hold=None)
    started = min((task.started for task in known if task.started is not None), default=None)
    sizes = {name: len({task.key.index for task in placed if task.key.role == name}) for name in value.spec.roles}
    return replace(
        value,
        phase=JobPhase.STOPPING if value.ending is not None else JobPhase.RUNNING,
        started=value.started or started,
        sizes=value.sizes or ({} if task_expansion.folds_into_one(value) else sizes),
        hold=None,
    )


def _as_reported(task: Task, attempt: RecordedAttempt, report: TaskReport | None) -> Task:
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
