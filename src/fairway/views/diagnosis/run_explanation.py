"""The reason for the state of a run, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.state.event import RunEvent
from fairway.state.fault import WorkFault
from fairway.state.job import JobState, WaitReason
from fairway.state.launcher import separate_worlds
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task
from fairway.units.notebook_card import NotebookView
from fairway.views.diagnosis.excluded_path import explain
from fairway.views.diagnosis.failure_advice import advice
from fairway.views.diagnosis.waiting_run import WaitingRunView
from fairway.views.fault import FaultView, fault_views
from fairway.views.job import not_numbers, split_attempts
from fairway.views.text import phrase


class RunExplanationView(NotebookView, frozen=True):
    """The reply to `fairway why`."""

    name: str
    namespace: str
    phase: JobPhase
    reason: str
    """Machine-readable reason."""
    message: str
    what_would_help: str = ""
    position: int = 0
    """Position in the queue, 1 = next; 0 if not waiting."""
    since: float | None = None
    tail: str = ""
    """Last output lines of the task that caused a failure."""
    waiting: WaitingRunView | None = None
    """Forecast start and changes that would help; null if the run does not wait for resources."""
    faults: tuple[FaultView, ...] = ()
    """Operations for the run that currently fail and are retried."""


def why_view(
    job: JobState,
    tasks: Sequence[Task],
    now: float,
    hold: WaitReason | None = None,
    waiting: WaitingRunView | None = None,
    faults: Sequence[WorkFault] = (),
    *,
    left: str = "",
) -> RunExplanationView:
    """Return the reason for the state of a run. `hold` is a more recent reason for waiting than the run's own, if known.

    `left` is the reason for the run's last preemption, if it has waited since then.
    """
    if hold is not None:
        job = replace(job, hold=replace(hold, since=job.hold.since if job.hold is not None else 0.0))
    reason, message, helps, since = _failing(faults) if faults and not job.phase.over else _answer(job, tasks, now)
    message = f"{message}; before that it ran, and {left}" if left else message
    apart = separate_worlds(split_attempts(job, tasks)[0])
    message = f"{message}; {apart}" if apart else message
    return RunExplanationView(
        name=job.key.name,
        namespace=job.key.namespace,
        phase=job.phase,
        reason=reason,
        message=message,
        what_would_help=explain(job, tasks) or helps,
        position=waiting.position if waiting is not None else 0,
        since=since,
        tail=_tail(job, tasks),
        waiting=waiting,
        faults=fault_views(faults),
    )


def _failing(faults: Sequence[WorkFault]) -> tuple[str, str, str, float | None]:
    message = "an operation for this run is failing"
    return "fault", message, "remove the cause; Fairway keeps retrying and then continues by itself", faults[0].since


def _answer(job: JobState, tasks: Sequence[Task], now: float) -> tuple[str, str, str, float | None]:
    if job.phase.over:
        return _ended(job, tasks)
    if job.phase is JobPhase.STOPPING:
        unfinished = [task.key.task for task in tasks if not task.phase.over]
        suffix = f"; waiting for {phrase.listing(unfinished)} to end" if unfinished else ""
        detail = job.outcome.message if job.outcome else "asked to stop"
        return job.outcome.reason if job.outcome else "Stopping", f"{detail}{suffix}", f"fairway stop --now {job.key.name}", None
    if job.leaving is not None:
        return (
            "making-room",
            job.leaving.message,
            "nothing to do; it waits for resources again and continues by itself",
            job.leaving.since,
        )
    if job.not_before is not None and job.not_before > now:
        detail = f"{job.outcome.message}; " if job.outcome else ""
        wait = phrase.span(job.not_before - now)
        message = f"{detail}starts again in {wait} ({job.restarts} of {job.spec.restart.max} restarts used)"
        return "backoff", message, "nothing to do; it continues by itself", None
    if job.hold is not None:
        return job.hold.reason, job.hold.message, job.hold.what_would_help, job.hold.since or None
    if job.phase is JobPhase.RUNNING:
        return _running_answer(job, tasks, now)
    if job.phase is JobPhase.RESTARTING:
        detail = job.outcome.message if job.outcome else "a task ended"
        return "restarting", f"{detail}; the gang starts again", "nothing to do; it continues by itself", None
    if job.phase is JobPhase.STARTING:
        return "starting", _starting(job, tasks), "", None
    return "new", "it was just submitted and is not scheduled yet", "", job.created


def left_for(job: JobState, events: Sequence[RunEvent]) -> str:
    """Return why a waiting run was preempted, if it was: `makes room for service web, which is more urgent`."""
    if job.phase is not JobPhase.PENDING:
        return ""
    last = next((event for event in reversed(events) if event.reason in ("Requeued", "Placed")), None)
    return last.message.partition(";")[0] if last is not None and last.reason == "Requeued" else ""


def _ended(job: JobState, tasks: Sequence[Task]) -> tuple[str, str, str, float | None]:
    outcome = job.outcome
    reason = outcome.reason if outcome else job.phase.value
    message = (outcome.message if outcome else "") or job.phase.value.lower()
    return reason, message, advice(job, list(tasks)), job.finished


def _running_answer(job: JobState, tasks: Sequence[Task], now: float) -> tuple[str, str, str, float | None]:
    name = job.key.name
    if job.stall is not None:
        first = (job.stall.idle or job.stall.busy or ("",))[0].partition(" ")[0].partition(".")[0]
        role, _, index = first.rpartition("-")
        task_flags = f" --role {role} --index {index}" if role and len(tasks) > 1 else ""
        helps = f"to see what it does: fairway logs {name}{task_flags} --tail 20; if it hangs: fairway stop {name}"
        return "stalled", f"it seems to hang: {phrase.stall(job.stall, now)}", helps, job.stall.since
    nan_metrics = not_numbers(job)
    if nan_metrics:
        message = phrase.listing([phrase.not_a_number(metric, job.not_numbers[metric]) for metric in nan_metrics])
        saved = f"; the newest checkpoint is from step {job.progress.checkpoint_step:,}" if job.progress.checkpoint_step else ""
        helps = f"fairway stop {name}, then lower the learning rate, clip gradients or look at the data of that step"
        return "nan", f"it runs, but {message}{saved}", helps, job.started
    return "running", _running(job, tasks), "", job.started


def _running(job: JobState, tasks: Sequence[Task]) -> str:
    current, _ = split_attempts(job, tasks)
    up = sum(task.phase is TaskPhase.RUNNING for task in current)
    return f"nothing blocks it; {up} of {phrase.count(len(current), 'task')} running"


def _starting(job: JobState, tasks: Sequence[Task]) -> str:
    current, _ = split_attempts(job, tasks)
    waiting = [task.key.task for task in current if task.phase is not TaskPhase.RUNNING]
    return (
        f"its resources are assigned; {phrase.listing(waiting[:4])} {'starts' if len(waiting) == 1 else 'start'} now"
        if waiting
        else "it starts now"
    )


def _tail(job: JobState, tasks: Sequence[Task]) -> str:
    if job.outcome is None or not job.outcome.task or job.phase is JobPhase.RUNNING:
        return ""
    ends = [task for task in tasks if task.key.task == job.outcome.task and task.exit is not None and task.exit.tail]
    newest = max(ends, key=lambda task: task.key.attempt, default=None)
    return newest.exit.tail if newest is not None and newest.exit is not None else ""
