"""Lifecycle of one run: create its tasks, monitor them, restart or end it. `scheduling` decides when it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.plan import exit_verdict, task_expansion
from fairway.plan.action import CreateTask, EvictTask, NudgeTask
from fairway.plan.plan import EnginePlanDraft
from fairway.spec import condition
from fairway.spec.job import RestartScope, SuccessPolicy
from fairway.state.job import JobState, ResumePoint, RunEviction, RunOutcome, WaitReason
from fairway.state.launcher import separate_worlds
from fairway.state.phase import JobPhase, RunIntent, TaskPhase
from fairway.state.task import Task
from fairway.units import quantity
from fairway.units.role import computes

BROKEN_GRACE = 5.0
"""Grace period in seconds for the remaining tasks of a broken gang: they have lost their peers."""
RETRY_AFTER = 1.0
"""Seconds until binding a gang is retried after the engine refused it."""


def advance(draft: EnginePlanDraft, job: JobState) -> bool:
    """Advance the run by one step. Return whether it waits for a placement."""
    tasks = draft.tasks_of(job.key)
    if job.ending is not None:
        _finish_when_over(draft, job, tasks)
        return False
    if job.intent is RunIntent.STOP:
        end(draft, job, JobPhase.STOPPED, RunOutcome("StoppedByUser", "stopped on request"), quantity.seconds(job.spec.grace))
        return False
    current = _current(job, tasks)
    if job.leaving is not None:
        if not _check_success(draft, job, current):
            _leave(draft, job, tasks)
        return False
    if _check_limits(draft, job, current) or _check_failures(draft, job, current) or _check_success(draft, job, current):
        return False
    return _start(draft, job, tasks, current)


def end(draft: EnginePlanDraft, job: JobState, phase: JobPhase, outcome: RunOutcome, grace: float) -> None:
    """Start ending the run with this phase and outcome; it is over when its last task is over."""
    job = replace(job, phase=JobPhase.STOPPING, ending=phase, outcome=outcome, hold=None, not_before=None, leaving=None)
    draft.put_job(job)
    _evict(draft, draft.tasks_of(job.key), grace, outcome.reason, ask=_asks(job))
    _finish_when_over(draft, job, draft.tasks_of(job.key))


def _finish_when_over(draft: EnginePlanDraft, job: JobState, tasks: Sequence[Task]) -> None:
    grace = quantity.seconds(job.spec.grace)
    if job.nudged is None:
        _evict(draft, tasks, grace, "Ending", ask=_asks(job))
    elif draft.now >= job.nudged + grace:
        _evict(draft, tasks, grace, "StopCondition")
    elif any(not task.phase.over for task in tasks):
        draft.wake(job.nudged + grace)
    remaining = draft.tasks_of(job.key)
    if job.ending is None or any(not task.phase.over for task in remaining):
        return
    if job.deleting:
        # The run stays in this phase until all of its data is removed, so that the deletion continues after a restart.
        draft.deleted.append(job.key)
        return
    started = job.started or min((task.started for task in remaining if task.started is not None), default=None)
    finished = max((task.finished for task in remaining if task.finished is not None), default=draft.now)
    draft.put_job(replace(job, phase=job.ending, ending=None, started=started, finished=finished, nudged=None, hold=None))
    outcome = job.outcome or RunOutcome("Completed")
    draft.tell(job.key, job.ending.value, outcome.message or outcome.reason)
    separated = separate_worlds(task for task in remaining if task.key.attempt >= job.attempt)
    if separated:
        draft.tell(job.key, "SeparateWorlds", separated)


def _asks(job: JobState) -> bool:
    """Return whether the tasks of an ending run may have work to save: the run is stopped or timed out, and has not failed.

    The tasks of an interrupted run have received SIGINT, which already requests a stop.
    """
    reason = job.outcome.reason if job.outcome is not None else ""
    return reason == "Timeout" or (job.ending is JobPhase.STOPPED and reason != exit_verdict.INTERRUPTED)


def _evict(draft: EnginePlanDraft, tasks: Sequence[Task], grace: float, reason: str, *, ask: bool = False) -> None:
    for task in tasks:
        if task.phase.over:
            continue
        if task.phase is TaskPhase.PENDING:
            draft.put_task(replace(task, phase=TaskPhase.STOPPED, finished=draft.now, message="never started"))
            # A daemon that has died since may have sent its start command, so the engine must evict the task as well.
            draft.actions.append(EvictTask(task.key, 0.0, reason))
            continue
        evicted_at = task.evicting_since
        if evicted_at is None or draft.now >= evicted_at + grace + BROKEN_GRACE:
            # At the second attempt the supervisor should have killed the task after the grace period: evict it with grace 0.
            draft.actions.append(
                EvictTask(task.key, grace if evicted_at is None else 0.0, reason, ask=ask and evicted_at is None)
            )
            draft.put_task(replace(task, evicting_since=draft.now))
            evicted_at = draft.now
        draft.wake(evicted_at + grace + BROKEN_GRACE)


def _check_limits(draft: EnginePlanDraft, job: JobState, current: Sequence[Task]) -> bool:
    grace = quantity.seconds(job.spec.grace)
    if job.spec.timeout is not None and job.started is not None:
        deadline = job.started + quantity.seconds(job.spec.timeout)
        if draft.now >= deadline:
            end(draft, job, JobPhase.FAILED, RunOutcome("Timeout", f"ran longer than its timeout of {job.spec.timeout}"), grace)
            return True
        draft.wake(deadline)
    reached = _stop_condition(job)
    if not reached:
        return False
    outcome = RunOutcome("StopCondition", reached)
    draft.put_job(replace(job, phase=JobPhase.STOPPING, ending=JobPhase.SUCCEEDED, outcome=outcome, nudged=draft.now))
    draft.tell(job.key, "StopCondition", reached)
    draft.actions.extend(NudgeTask(task.key, reached) for task in current if task.phase.holds_resources)
    _finish_when_over(draft, draft.job(job.key), current)
    return True


def _stop_condition(job: JobState) -> str:
    stop, progress = job.spec.stop, job.progress
    if stop.at_step is not None and progress.step is not None and progress.step >= stop.at_step:
        return f"reached step {progress.step:,}"
    if stop.when:
        values = dict(progress.metrics)
        if progress.step is not None:
            values["step"] = float(progress.step)
        if condition.parse(stop.when).evaluate(values):
            return f"{stop.when} (" + ", ".join(f"{name} = {value:g}" for name, value in sorted(values.items())) + ")"
    return ""


def _check_success(draft: EnginePlanDraft, job: JobState, current: Sequence[Task]) -> bool:
    deciding = [task for task in current if task.key.role in _deciding_roles(job)]
    if task_expansion.first_starts_all(job):
        deciding = [task for task in deciding if task.key.index == 0]  # the other workers only host the processes that it starts
    if not deciding or any(task.phase is not TaskPhase.SUCCEEDED for task in deciding):
        return False
    grace = quantity.seconds(job.spec.grace)
    end(draft, job, JobPhase.SUCCEEDED, RunOutcome("Completed", "completed"), min(grace, BROKEN_GRACE))
    return True


def _deciding_roles(job: JobState) -> set[str]:
    roles = set(job.spec.roles)
    policy = job.spec.success
    for name, choice in (("launcher", SuccessPolicy.LAUNCHER), ("chief", SuccessPolicy.CHIEF), ("master", SuccessPolicy.CHIEF)):
        if name in roles and policy in (SuccessPolicy.AUTO, choice):
            return {name}
    if policy is SuccessPolicy.ALL:
        return roles
    return {name for name in roles if computes(name)} or roles


def _check_failures(draft: EnginePlanDraft, job: JobState, current: Sequence[Task]) -> bool:
    failed = [task for task in current if task.phase in (TaskPhase.FAILED, TaskPhase.LOST)]
    if not failed:
        return _check_half_gang(draft, job, current)
    if _waits_for_cause(draft, job, failed, current):
        return True
    culprit = exit_verdict.cause(failed)
    verdict = exit_verdict.judge(culprit, job)
    outcome = RunOutcome(verdict.reason, verdict.message, culprit.key.task, culprit.exit.code if culprit.exit else None)
    spent = verdict.counted and job.restarts >= job.spec.restart.max
    if verdict.final or spent:
        if spent and not verdict.final and job.spec.restart.max:
            outcome = replace(outcome, message=f"{outcome.message}; all {job.spec.restart.max} restarts are used up")
        interrupted = verdict.reason == exit_verdict.INTERRUPTED
        # The other tasks were interrupted, too, and may still save their state.
        grace = quantity.seconds(job.spec.grace) if interrupted else BROKEN_GRACE
        end(draft, job, JobPhase.STOPPED if interrupted else JobPhase.FAILED, outcome, grace)
        return True
    job = replace(
        job,
        outcome=outcome,
        hold=None,
        last_failure=verdict.signature or job.last_failure,
        trail=verdict.trail,
        restarts=job.restarts + verdict.counted,
        memory_factor=task_expansion.OUT_OF_MEMORY_FACTOR if verdict.reason == "OutOfMemory" else job.memory_factor,
    )
    draft.put_job(job)
    if job.spec.restart.scope is RestartScope.TASK:
        for task in failed:
            _restart_task(draft, job, task)
    else:
        _restart_gang(draft, job, failed, current)
    return True


def _waits_for_cause(draft: EnginePlanDraft, job: JobState, failed: Sequence[Task], current: Sequence[Task]) -> bool:
    """Return whether to wait for the cause because all failed tasks only lost a peer.

    The engine may still report what became of that peer, and that end may not count against the restart budget.
    """
    if not draft.cause_within or exit_verdict.primary(failed) or all(task.phase.over for task in current):
        return False
    is_waiting = job.hold is not None and job.hold.reason == "cause"
    since = job.hold.since if job.hold is not None and is_waiting else draft.now
    if draft.now >= since + draft.cause_within:
        return False
    if not is_waiting:
        message = f"{exit_verdict.cause(failed).key.task} lost a peer; why that peer ended is not known yet"
        draft.put_job(replace(job, hold=WaitReason("cause", message, since=since)))
        draft.tell(job.key, "PeerLost", message)
    draft.wake(since + draft.cause_within)
    return True


def _check_half_gang(draft: EnginePlanDraft, job: JobState, current: Sequence[Task]) -> bool:
    """Restart a gang of which some tasks were never started (the machine went down in between); return whether it was."""
    begun = [task for task in current if task.phase not in (TaskPhase.PENDING, TaskPhase.PLACED)]
    waiting = [task for task in current if task.phase is TaskPhase.PENDING]
    if not begun or not waiting or job.spec.restart.scope is RestartScope.TASK:
        return False
    draft.tell(job.key, "HalfGang", f"{len(waiting)} of {len(current)} tasks were never started; the gang starts again")
    _restart_gang(draft, job, [], current)
    return True


def make_room(draft: EnginePlanDraft, job: JobState, leaving: RunEviction) -> None:
    """Evict the run: its tasks save and stop. It returns to the queue once they have ended."""
    draft.put_job(replace(job, leaving=leaving))
    draft.tell(job.key, "MakingRoom", leaving.message)
    _leave(draft, draft.job(job.key), draft.tasks_of(job.key))


def _leave(draft: EnginePlanDraft, job: JobState, tasks: Sequence[Task]) -> None:
    assert job.leaving is not None
    _evict(draft, tasks, quantity.seconds(job.spec.grace), job.leaving.cause, ask=True)
    if any(not task.phase.over for task in draft.tasks_of(job.key)):
        return
    draft.put_job(
        replace(
            job,
            phase=JobPhase.PENDING,
            attempt=max((task.key.attempt for task in tasks), default=job.attempt) + 1,
            sizes=dict(job.leaving.sizes),
            resume=_resume(job, draft.now),
            trail=exit_verdict.came_to(job),
            evictions=job.evictions + 1,
            leaving=None,
            hold=None,
        )
    )
    draft.tell(job.key, "Requeued", f"{job.leaving.message}; {_from_where(job)}")


def _resume(job: JobState, now: float) -> ResumePoint:
    progress = job.progress
    since = progress.checkpoint_time if progress.checkpoint_step is not None else job.started
    steps = None if progress.step is None else max(0, progress.step - (progress.checkpoint_step or 0))
    return ResumePoint(progress.checkpoint_step, max(0.0, now - since) if since is not None else None, steps)


def _from_where(job: JobState) -> str:
    step = job.progress.checkpoint_step
    return f"it goes on from step {step:,}" if step is not None else "it has saved nothing and begins again"


def _restart_gang(draft: EnginePlanDraft, job: JobState, failed: Sequence[Task], current: Sequence[Task]) -> None:
    sizes: dict[str, int] = {}
    if job.spec.restart.scope is RestartScope.SHRINK:
        sizes = dict(job.sizes)
        for task in exit_verdict.primary(failed) or failed:
            minimum = job.spec.roles[task.key.role].replicas.min
            sizes[task.key.role] = max(minimum, sizes.get(task.key.role, minimum) - 1)
    _evict(draft, current, BROKEN_GRACE, "GangRestart")
    draft.put_job(
        replace(
            job,
            phase=JobPhase.RESTARTING,
            attempt=job.attempt + 1,
            sizes=sizes,
            resume=_resume(job, draft.now),
            not_before=draft.now + _backoff(job),
        )
    )
    why = job.outcome.message if job.outcome and failed else "the gang was incomplete"
    draft.tell(job.key, "Restarting", f"{why}; attempt {job.attempt + 2}, {job.restarts} of {job.spec.restart.max} restarts used")
    draft.wake(draft.now + _backoff(job))


def _restart_task(draft: EnginePlanDraft, job: JobState, task: Task) -> None:
    key = replace(task.key, attempt=task.key.attempt + 1)
    draft.put_task(Task(key, need=task.need, processes=task.processes, slots=task.slots, created=draft.now))
    draft.actions.append(CreateTask(job, Task(key, need=task.need, processes=task.processes, slots=task.slots)))
    draft.put_job(replace(draft.job(job.key), not_before=draft.now + _backoff(job)))
    draft.tell(key, "Restarting", f"{job.outcome.message if job.outcome else 'failed'}; only {task.key.task} starts again")


def _backoff(job: JobState) -> float:
    """Return the seconds to wait before a restart: none for the first, then doubling.

    Restart requests (exit 75) without progress back off in the same way.
    """
    times = max(job.restarts, job.trail.requeues)
    if times <= 1:
        return 0.0
    first, longest = quantity.seconds(job.spec.restart.backoff), quantity.seconds(job.spec.restart.backoff_max)
    return min(longest, first * 2.0 ** min(times - 2, 30))


def _start(draft: EnginePlanDraft, job: JobState, tasks: Sequence[Task], current: Sequence[Task]) -> bool:
    if not current:
        if any(not task.phase.over for task in tasks):
            _evict(draft, tasks, BROKEN_GRACE, "GangRestart")
        else:
            _create(draft, job)
        return False
    if any(task.phase is TaskPhase.PENDING for task in current):
        return _is_ready(draft, job, [task for task in current if task.phase is TaskPhase.PENDING])
    is_starting = any(task.phase in (TaskPhase.PLACED, TaskPhase.STARTING) for task in current)
    if job.phase is not JobPhase.RUNNING and not is_starting:
        started = min((task.started for task in current if task.started is not None), default=draft.now)
        draft.put_job(replace(job, phase=JobPhase.RUNNING, hold=None, started=job.started or started))
        draft.tell(job.key, "Running", f"{len(current)} tasks run" if len(current) != 1 else "1 task runs")
    return False


def _is_ready(draft: EnginePlanDraft, job: JobState, pending: Sequence[Task]) -> bool:
    message = next((task.message for task in pending if task.message), "")
    if all(task.ready for task in pending):
        if not message:
            return True
        # The engine could not bind it (a device or port was taken in between): retry after `RETRY_AFTER`.
        for task in pending:
            draft.put_task(replace(task, message=""))
        draft.put_job(replace(job, hold=WaitReason("refused", message, since=draft.now), not_before=draft.now + RETRY_AFTER))
        draft.wake(draft.now + RETRY_AFTER)
        return False
    activity = message or "preparing code and environment"
    if job.hold is None or job.hold.message != activity:
        draft.put_job(replace(job, hold=WaitReason("preparing", activity, since=draft.now)))
    return False


def _create(draft: EnginePlanDraft, job: JobState) -> None:
    # After a shrink the gang keeps its smaller size; otherwise it starts from the minimum and grows when placed.
    sizes = task_expansion.smallest_sizes(job.spec)
    if task_expansion.folds_into_one(job):
        sizes = task_expansion.largest_sizes(job.spec)
        job = replace(job, sizes=sizes)
        draft.put_job(job)
    for task in task_expansion.make_tasks(job, sizes, draft.capacity_cpu, draft.now):
        draft.put_task(task)
        draft.actions.append(CreateTask(job, task))


def _current(job: JobState, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks of the current attempt.

    That is the gang's attempt, or a task's own newest attempt when it was restarted alone.
    """
    newest: dict[tuple[str, int], int] = {}
    for task in tasks:
        index = (task.key.role, task.key.index)
        newest[index] = max(task.key.attempt, newest.get(index, job.attempt))
    return [task for task in tasks if task.key.attempt == newest[task.key.role, task.key.index]]
