"""Views of a run and its tasks, shared by the API, the SDK and the command line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from fairway.plan.task_expansion import folds_into_one, slot_count
from fairway.spec.job import JobSpec, TrainingFramework
from fairway.state.fault import WorkFault
from fairway.state.job import JobState, SubmissionOrigin
from fairway.state.launcher import separate_worlds
from fairway.state.mlflow_record import TrackedRun
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task
from fairway.units import number, quantity
from fairway.units.notebook_card import NotebookView
from fairway.views.fault import FaultView, fault_views
from fairway.views.job_document import MASK, flat_spec, looks_secret
from fairway.views.metric import MetricSummaryView, summary_views
from fairway.views.text import phrase


class RunProgressView(msgspec.Struct, frozen=True):
    """The last report of rank 0, and the newest saved checkpoint."""

    step: int | None = None
    at_step: int | None = None
    """The step at which the run ends as succeeded, if the document names one."""
    metrics: dict[str, float | None] = {}
    """The last value of each metric by step, then by time. A value that is not a number is null in JSON."""
    time: float | None = None
    steps_per_second: float | None = None
    remaining: float | None = None
    """Seconds until `at_step` at the current speed."""
    checkpoint_step: int | None = None
    checkpoint_time: float | None = None
    stall: str = ""
    """Description of a suspected hang: the idle ranks, and since when."""
    summary: dict[str, MetricSummaryView] = {}
    """Summary of each metric over the run: last and best value. Runs of an earlier version have none."""


class HoldReasonView(msgspec.Struct, frozen=True):
    """The reason why a run waits."""

    reason: str
    message: str
    what_would_help: str = ""
    since: float = 0.0


class RunOutcomeView(msgspec.Struct, frozen=True):
    """The outcome of a run, or of its last attempt."""

    reason: str
    message: str = ""
    task: str = ""
    exit_code: int | None = None


class RunRoleView(msgspec.Struct, frozen=True):
    """Summary of a role."""

    replicas: int
    min: int
    max: int
    command: str = ""
    resources: dict[str, Any] = {}


class TaskView(NotebookView, frozen=True):
    """An attempt of a task."""

    name: str
    role: str
    index: int
    attempt: int
    phase: TaskPhase
    node: str = ""
    devices: tuple[str, ...] = ()
    cpu: float = 0.0
    memory: int = 0
    gpu: float = 0.0
    processes: int = 1
    """Number of processes that the engine starts."""
    slots: int = 1
    """Number of ranks that the task may have if its command is a launcher such as `mpirun` or `torchrun`."""
    address: str = ""
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    duration: float | None = None
    exit: str = ""
    """`exit 1`, `SIGKILL`, `out of memory`; empty while it runs."""
    exit_code: int | None = None
    exit_signal: int | None = None
    """Number of the signal that ended the task."""
    cpu_used: float | None = None
    """Cores that all its processes use now; measured only for `top`."""
    memory_used: int | None = None
    """Bytes that it uses now; pages shared by processes are divided between them."""
    gpu_used: float | None = None
    """Fraction of the time in which its devices compute."""
    message: str = ""
    tail: str = ""
    """Its last output lines, if it failed."""


class JobView(NotebookView, frozen=True):
    """A run."""

    name: str
    namespace: str
    series: str
    number: int
    phase: JobPhase
    framework: str
    roles: dict[str, RunRoleView]
    ready: int
    """Number of running tasks, out of `replicas`."""
    replicas: int
    gpus: float
    priority: int
    queue: str
    user: str
    created: float
    started: float | None
    finished: float | None
    duration: float | None
    attempt: int
    restarts: int
    restarts_max: int
    progress: RunProgressView
    hold: HoldReasonView | None
    position: int
    """Position in the queue, 1 = next; 0 if not waiting."""
    outcome: RunOutcomeView | None
    resume: str
    """The point from which the current attempt continues, as a sentence; empty if the run never restarted."""
    nodes: tuple[str, ...]
    labels: dict[str, str]
    outputs: dict[str, str]
    folder: str
    """Folder in which the engine keeps code, logs, checkpoints and outputs."""
    origin: str
    """Folder in which the command was typed."""
    code_digest: str
    warnings: tuple[str, ...]
    commit: str = ""
    """The commit that its code was at when it was copied; empty when it is not known."""
    left_out: tuple[str, ...] = ()
    """Paths that ignore files excluded from the copy of the code and that the program may miss; the first hundred."""
    processes: int = 1
    """Ranks of all tasks, started by the engine or by a launcher."""
    params: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Parameters that the program logged through an MLflow client; values that look secret are masked. Unset in lists."""
    tags: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Tags that the program logged, in the same way."""
    tasks: tuple[TaskView, ...] | msgspec.UnsetType = msgspec.UNSET
    """The current attempt of each task. Unset in lists."""
    earlier: tuple[TaskView, ...] | msgspec.UnsetType = msgspec.UNSET
    """Earlier attempts, oldest first."""
    models: tuple[str, ...] = ()
    """The model versions that the run registered: `mnist@3`."""
    spec: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """The document in the flat spelling; values that look secret are masked."""
    terminal: bool = False
    """Whether the first process has a terminal."""
    faults: tuple[FaultView, ...] = ()
    """Operations for the run that currently fail and are retried."""


class JobList(NotebookView, frozen=True):
    """A page of runs, newest first."""

    jobs: tuple[JobView, ...]
    next: str = ""
    total: int = 0


def job_view(
    job: JobState,
    tasks: Sequence[Task],
    now: float,
    *,
    position: int = 0,
    folder: str = "",
    warnings: Iterable[str] = (),
    tracked: TrackedRun | None = None,
    models: Iterable[str] = (),
    faults: Iterable[WorkFault] = (),
    tasks_too: bool = True,
    spec_too: bool = True,
) -> JobView:
    """Return the view of a run."""
    current, earlier = split_attempts(job, tasks)
    sizes = _sizes(job, current)
    return JobView(
        name=job.key.name,
        namespace=job.key.namespace,
        series=job.series,
        number=job.number,
        phase=job.phase,
        framework=job.spec.framework.value,
        roles=_roles(job.spec, sizes),
        ready=sum(task.phase is TaskPhase.RUNNING for task in current),
        replicas=len(current) or (1 if folds_into_one(job) else sum(sizes.values())),
        processes=_processes(job.spec, current, sizes),
        gpus=float(sum(task.need.gpu for task in current) or asked_gpus(job.spec, sizes)),
        priority=job.spec.priority,
        queue=job.spec.queue,
        created=job.created,
        started=job.started,
        finished=job.finished,
        duration=_duration(job.started, job.finished, now),
        attempt=job.attempt,
        restarts=job.restarts,
        restarts_max=job.spec.restart.max,
        progress=_progress(job, now),
        hold=HoldReasonView(job.hold.reason, job.hold.message, job.hold.what_would_help, job.hold.since) if job.hold else None,
        position=position,
        outcome=_outcome(job),
        resume=phrase.resume(job.resume) if job.resume else "",
        nodes=tuple(dict.fromkeys(task.node for task in current if task.node)),
        labels=job.labels,
        outputs=job.spec.outputs,
        folder=folder,
        **_from(job.origin),
        warnings=(*warnings, *_warnings(job, now), *filter(None, [separate_worlds(current)])),
        params=_fit_to_show(tracked.params) if tracked else msgspec.UNSET,
        tags=_fit_to_show(tracked.tags) if tracked else msgspec.UNSET,
        models=tuple(models),
        tasks=tuple(task_view(task, now) for task in current) if tasks_too else msgspec.UNSET,
        earlier=tuple(task_view(task, now) for task in earlier) if tasks_too else msgspec.UNSET,
        spec=flat_spec(job) if spec_too else msgspec.UNSET,
        terminal=job.origin.terminal,
        faults=fault_views(faults),
    )


def _from(origin: SubmissionOrigin) -> dict[str, Any]:
    """Return the fields about the origin: user, folder and code."""
    return {
        "user": origin.user,
        "origin": origin.folder,
        "code_digest": origin.code_digest,
        "commit": origin.commit,
        "left_out": origin.left_out,
    }


def _fit_to_show(values: dict[str, str]) -> dict[str, str]:
    return {name: MASK if looks_secret(name) else value for name, value in values.items()}


def idle_gpus(job: JobState, free: float) -> str:
    """Return a warning if GPUs are idle and the document does not mention GPUs; else an empty text."""
    requested = any(role.resources.gpu is not None for role in job.spec.roles.values())
    if requested or free < 1 or job.spec.framework is TrainingFramework.COMMAND:
        return ""
    idle = phrase.count(int(free), "GPU")
    return f"{idle} idle here, but {job.series} requests none; request with `resources: {{gpu: 1}}` or --gpus 1"


def task_view(task: Task, now: float) -> TaskView:
    """Return the view of a task."""
    end = task.exit
    unhappy = task.phase in (TaskPhase.FAILED, TaskPhase.LOST)
    return TaskView(
        name=task.key.task,
        role=task.key.role,
        index=task.key.index,
        attempt=task.key.attempt,
        phase=task.phase,
        node=task.node,
        devices=task.devices,
        cpu=task.need.cpu,
        memory=task.need.memory,
        gpu=task.need.gpu,
        processes=task.processes,
        slots=task.slots,
        address=task.address,
        created=task.created,
        started=task.started,
        finished=task.finished,
        duration=_duration(task.started, task.finished, now),
        exit=phrase.exit_of(end) if end else "",
        exit_code=end.code if end else None,
        exit_signal=end.signal if end else None,
        message=task.message,
        tail=end.tail if end and unhappy else "",
    )


def split_attempts(job: JobState, tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """Return the current tasks in the order of the document's roles, and the earlier attempts."""
    newest: dict[tuple[str, int], Task] = {}
    for task in sorted(tasks, key=lambda task: task.key.attempt):
        newest[task.key.role, task.key.index] = task
    # After a restart with fewer tasks, the tasks that were not restarted count as earlier.
    latest = {role_index: task for role_index, task in newest.items() if task.key.attempt >= job.attempt} or newest
    order = {role: role_index for role_index, role in enumerate(job.spec.roles)}
    current = sorted(latest.values(), key=lambda task: (order.get(task.key.role, len(order)), task.key))
    current_keys = {task.key for task in current}
    earlier = sorted((task for task in tasks if task.key not in current_keys), key=lambda task: (task.key.attempt, task.key))
    return current, earlier


def asked_gpus(spec: JobSpec, sizes: dict[str, int]) -> float:
    """Return the number of GPUs that the roles request at these sizes."""
    return sum(
        quantity.number(role.resources.gpu) * sizes.get(name, role.replicas.min)
        for name, role in spec.roles.items()
        if role.resources.gpu is not None
    )


def _sizes(job: JobState, current: Sequence[Task]) -> dict[str, int]:
    if job.sizes:
        return {**{name: role.replicas.min for name, role in job.spec.roles.items()}, **job.sizes}
    if current:
        return {name: sum(task.key.role == name for task in current) for name in job.spec.roles}
    return {name: role.replicas.min for name, role in job.spec.roles.items()}


def _processes(spec: JobSpec, current: Sequence[Task], sizes: dict[str, int]) -> int:
    if current:
        return sum(max(task.processes, task.slots) for task in current)
    return sum(slot_count(role) * sizes[name] for name, role in spec.roles.items())


def _roles(spec: JobSpec, sizes: dict[str, int]) -> dict[str, RunRoleView]:
    return {
        name: RunRoleView(
            replicas=sizes[name],
            min=role.replicas.min,
            max=role.replicas.max,
            command=" ".join(role.command) or role.script.strip().partition("\n")[0],
            resources=role.resources.model_dump(mode="json", exclude_defaults=True),
        )
        for name, role in spec.roles.items()
    }


def _progress(job: JobState, now: float) -> RunProgressView:
    progress, goal = job.progress, job.spec.stop.at_step
    speed = progress.steps_per_second
    remaining = None
    if goal is not None and progress.step is not None and job.phase is JobPhase.RUNNING:
        needed = number.ratio(goal - progress.step, speed)
        remaining = None if needed is None else number.finite(max(0.0, needed - (now - (progress.time or now))))
    return RunProgressView(
        step=progress.step,
        at_step=goal,
        metrics=dict(progress.last),
        time=progress.time,
        steps_per_second=speed,
        remaining=remaining,
        checkpoint_step=progress.checkpoint_step,
        checkpoint_time=progress.checkpoint_time,
        stall=phrase.stall(job.stall, now) if job.stall and job.phase is JobPhase.RUNNING else "",
        summary=summary_views(progress.summaries, job.spec.stop.goals) if progress.summaries else {},
    )


def _outcome(job: JobState) -> RunOutcomeView | None:
    outcome = job.outcome
    return RunOutcomeView(outcome.reason, outcome.message, outcome.task, outcome.exit_code) if outcome else None


def _duration(started: float | None, finished: float | None, now: float) -> float | None:
    return None if started is None else max(0.0, (now if finished is None else finished) - started)


def not_numbers(job: JobState) -> tuple[str, ...]:
    """Return the metrics of the run that are NaN now."""
    return tuple(name for name in job.not_numbers if (value := job.progress.metrics.get(name)) is not None and math.isnan(value))


def _warnings(job: JobState, now: float) -> list[str]:
    warnings = list(job.origin.cautions)
    warnings += [phrase.not_a_number(name, job.not_numbers[name]) for name in not_numbers(job)]
    warnings += [phrase.removed(task, count, job.spec.keep.log_size) for task, count in job.logs_removed.items()]
    if job.stall is not None and job.phase is JobPhase.RUNNING:
        warnings.append(f"it seems to hang: {phrase.stall(job.stall, now)}")
    if job.memory_factor > 1.0:
        warnings.append(f"it ran out of memory, and now requests {job.memory_factor:g} times as much as the document says")
    if (
        job.phase is JobPhase.RUNNING
        and job.started is not None
        and job.spec.restart.max
        and job.progress.checkpoint_step is None
    ):
        every = quantity.seconds(job.spec.checkpoint.every)
        if job.progress.step is not None and now - job.started > max(600.0, 2 * every):
            warnings.append(f"no checkpoint in {phrase.span(now - job.started)}: a restart would begin at 0")
    return warnings
