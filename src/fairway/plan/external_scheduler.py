"""Planning where a cluster's own scheduler places the tasks: hand over complete gangs that are ready.

The scheduler's results return as task reports: why a task waits, which node it has, and that its run must be preempted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.plan import job as job_plan
from fairway.plan import task_expansion
from fairway.plan.action import BindGang, CreateTask
from fairway.plan.plan import EnginePlanDraft
from fairway.state.job import JobKey, JobState, WaitReason
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task

CAUSE_WITHIN = 100.0
"""Seconds until the loss of a node is certain: a cluster takes 50 to detect it, and its pods get 30 more. Until then the
fate of a peer on that node is unknown."""
HANDED_OVER = WaitReason("scheduler", "the scheduler has not reported a decision yet")


def hand_over(draft: EnginePlanDraft, waiting: Sequence[JobKey]) -> None:
    """Hand over ready runs to the scheduler, preempt runs that it selected, and copy its reasons for waiting."""
    for key in waiting:
        _hand_over(draft, draft.job(key))
    for key in draft.snapshot.jobs:
        job = draft.job(key)
        if job.phase.over or job.ending is not None:
            continue
        _make_room(draft, job)
        _repeat_why(draft, draft.job(key))


def _hand_over(draft: EnginePlanDraft, job: JobState) -> None:
    current = [task for task in draft.tasks_of(job.key) if not task.phase.over]
    running = [task for task in current if task.phase.holds_resources]
    pending = [task for task in current if task.phase is TaskPhase.PENDING]
    extra = _up_to_size(draft, job, current) if not running else []
    placed = [replace(task, phase=TaskPhase.PLACED, message="") for task in [*pending, *extra]]
    sizes = {name: sum(task.key.role == name for task in [*placed, *running]) for name in job.spec.roles}
    if task_expansion.folds_into_one(job):
        sizes = job.sizes
    hold = replace(HANDED_OVER, since=draft.now)
    # A task that joins running tasks does not put its run back to pending.
    phase = JobPhase.STARTING if running else JobPhase.PENDING
    job = replace(job, phase=phase, hold=hold, not_before=None, sizes=sizes)
    draft.put_job(job)
    for task in placed:
        draft.put_task(task)
    draft.actions.extend(CreateTask(job, task) for task in extra)
    draft.actions.append(BindGang(job, tuple(placed), tuple(running)))
    draft.tell(job.key, "HandedOver", f"{len(placed)} task{'' if len(placed) == 1 else 's'} wait for the scheduler")


def _up_to_size(draft: EnginePlanDraft, job: JobState, current: Sequence[Task]) -> list[Task]:
    """Return the tasks beyond the gang's minimum, up to the sizes that the scheduler allowed."""
    if task_expansion.folds_into_one(job):
        return []
    return [
        task_expansion.another_task(job, name, index, current, draft.now)
        for name, size in job.sizes.items()
        for index in range(sum(task.key.role == name for task in current), min(size, job.spec.roles[name].replicas.max))
    ]


def _make_room(draft: EnginePlanDraft, job: JobState) -> None:
    leaving = next((task.leave for task in draft.tasks_of(job.key) if task.leave and not task.phase.over), None)
    if leaving is not None and job.leaving is None:
        job_plan.make_room(draft, job, replace(leaving, since=draft.now))


def _repeat_why(draft: EnginePlanDraft, job: JobState) -> None:
    if job.phase is not JobPhase.PENDING or job.hold is None or job.leaving is not None:
        return
    reason = next((task.message for task in draft.tasks_of(job.key) if task.phase is TaskPhase.PLACED and task.message), "")
    if reason and reason != job.hold.message:
        draft.put_job(replace(job, hold=WaitReason("scheduler", reason, since=job.hold.since)))
        draft.tell(job.key, "Waiting", reason)
