"""Repeat actions after a restart of the daemon: actions may have been lost between recording and performing them.

Every action is idempotent, so repeating it is safe.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fairway.plan.action import CreateTask, NudgeTask
from fairway.plan.plan import EnginePlan, EnginePlanDraft
from fairway.state.job import JobKey
from fairway.state.phase import TaskPhase
from fairway.state.snapshot import PlannerSnapshot


def recover(snapshot: PlannerSnapshot, now: float, runs: Collection[JobKey] | None = None) -> EnginePlan:
    """Repeat the actions that an unfinished cycle may not have performed, for these runs or for all.

    `evicting_since` is cleared, so that evictions are planned again.
    """
    draft = EnginePlanDraft(snapshot, now)
    for key, job in snapshot.jobs.items():
        if runs is not None and key not in runs:
            continue
        for task in snapshot.tasks_of(key):
            if task.phase in (TaskPhase.PENDING, TaskPhase.PLACED):
                task = replace(task, ready=False, message="")
                draft.put_task(task)
                draft.actions.append(CreateTask(job, task))
            elif task.evicting_since is not None and not task.phase.over:
                draft.put_task(replace(task, evicting_since=None))
            if job.nudged is not None and task.phase.holds_resources:
                draft.actions.append(NudgeTask(task.key, "repeated after a restart of the daemon"))
    return draft.finish()
