"""What would happen, and why: a plan in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, NudgeTask
from fairway.plan.plan import Plan
from fairway.state.job import Job
from fairway.state.task import Need, Task
from fairway.units import quantity
from fairway.views import phrases
from fairway.views.flat import flat_spec


class PlanView(msgspec.Struct, frozen=True):
    """A plan: nothing of it was done."""

    sentences: tuple[str, ...]
    jobs: tuple[str, ...]
    documents: tuple[dict[str, object], ...] = ()
    """The documents as they were understood, defaults left out."""


def plan_view(plan: Plan, asked: Sequence[Job] = ()) -> PlanView:
    """The plan in sentences, in order: what would be made, started, ended, and what would wait and why."""
    sentences: list[str] = []
    created: dict[str, list[Task]] = {}
    for action in plan.actions:
        if isinstance(action, CreateTask):
            created.setdefault(action.job.key.name, []).append(action.task)
    for name, tasks in created.items():
        sentences.extend(_made(name, tasks))
    sentences.extend(said for action in plan.actions for said in _sentences(action))
    started = {action.job.key for action in plan.actions if isinstance(action, BindGang)}
    for job in plan.jobs:
        if job.hold is not None and job.key not in started:
            helps = f"; what would help: {job.hold.what_would_help}" if job.hold.what_would_help else ""
            sentences.append(f"{job.key.name} would wait: {job.hold.message}{helps}")
    shown = asked or plan.jobs
    return PlanView(
        tuple(sentences) or ("nothing would change",),
        tuple(job.key.name for job in shown),
        tuple(flat_spec(job) for job in shown),
    )


def needs(need: Need) -> str:
    """`1 CPU, 2 GiB memory, 1 GPU (A100 or H100)`."""
    parts = [f"{quantity.show_number(need.cpu)} CPU"] if need.cpu else []
    if need.memory:
        parts.append(f"{quantity.show_bytes(need.memory)} memory")
    if need.gpu:
        kind = f" ({' or '.join(need.gpu_type)})" if need.gpu_type else ""
        parts.append(f"{quantity.show_number(need.gpu)} GPU{kind}")
    parts.extend(f"{amount} {name}" for name, amount in need.other.items())
    return ", ".join(parts) or "nothing"


def _made(name: str, tasks: Sequence[Task]) -> list[str]:
    groups: dict[tuple[str, str, int], int] = {}
    for task in tasks:
        kind = (task.key.role, needs(task.need), task.processes)
        groups[kind] = groups.get(kind, 0) + 1
    return [
        f"{name} would have {phrases.count(number, role)}, each with {need}"
        + (f" and {processes} processes" if processes > 1 else "")
        for (role, need, processes), number in groups.items()
    ]


def _sentences(action: Action) -> list[str]:
    match action:
        case BindGang(job, tasks):
            return [f"{job.key.name} would start now:", *(f"  {_placed(task)}" for task in tasks)]
        case EvictTask(key, grace, reason):
            how = f"with {phrases.span(grace)} to save its state" if grace else "at once"
            return [f"{key.job}/{key.task} would be ended {how} ({reason})"]
        case NudgeTask(key, reason):
            return [f"{key.job}/{key.task} would be asked to end ({reason})"]
        case ForgetJob(key):
            return [f"{key.name} would be deleted with its logs, checkpoints and outputs"]
        case _:
            return []


def _placed(task: Task) -> str:
    devices = f" with {phrases.listing(task.devices)}" if task.devices else ""
    return f"{task.key.task} on {task.node or 'any node'}{devices} ({needs(task.need)})"
