"""View of a plan: what would happen and why, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, NudgeTask
from fairway.plan.plan import EnginePlan
from fairway.state.task import Task, TaskNeed
from fairway.units import quantity
from fairway.units.notebook_card import NotebookView
from fairway.views.job_document import flat_spec
from fairway.views.text import phrase


class PlanView(NotebookView, frozen=True):
    """A plan. It has not been carried out."""

    sentences: tuple[str, ...]
    jobs: tuple[str, ...]
    documents: tuple[dict[str, object], ...] = ()
    """The documents as parsed, without defaults."""
    missing: tuple[str, ...] = ()
    """Inputs and other prerequisites that the runs would lack at their start, each with its fix."""


def plan_view(plan: EnginePlan) -> PlanView:
    """Return the plan in sentences: its runs, starts with their nodes, evictions, and waiting runs with their reasons."""
    names = {job.key: job.series if job.number == 0 else job.key.name for job in plan.jobs}
    sentences: list[str] = []
    for key, name in names.items():
        sentences.extend(
            _made(name, [action.task for action in plan.actions if isinstance(action, CreateTask) and action.job.key == key])
        )
    started = set()
    for action in plan.actions:
        if isinstance(action, BindGang) and action.job.key in names:
            started.add(action.job.key)
            sentences.append(f"{names[action.job.key]} would start now:")
            sentences.extend(f"  {_placed(task)}" for task in action.tasks)
        else:
            sentences.extend(_ended(action))
    for job in plan.jobs:
        if job.hold is not None and job.key not in started:
            helps = f"; what would help: {job.hold.what_would_help}" if job.hold.what_would_help else ""
            sentences.append(f"{names[job.key]} would wait: {job.hold.message}{helps}")
    return PlanView(
        tuple(sentences) or ("nothing would change",),
        tuple(names.values()),
        tuple(flat_spec(job) for job in plan.jobs),
    )


def plan_text(plan: PlanView) -> str:
    """Return one sentence per line; missing prerequisites come last."""
    lines = [*plan.sentences, *(f"missing: {text}" for text in plan.missing)]
    return "".join(f"{line}\n" for line in lines)


def needs(need: TaskNeed) -> str:
    """Return resources in words: `1 CPU, 2 GiB memory, 1 GPU (A100 or H100)`."""
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
        f"{name} would have {phrase.count(number, role)}{', each' if number > 1 else ''} with {need}"
        + (f" and {processes} processes" if processes > 1 else "")
        for (role, need, processes), number in groups.items()
    ]


def _ended(action: Action) -> list[str]:
    match action:
        case EvictTask(key, grace, reason):
            how = f"with {phrase.span(grace)} to save its state" if grace else "at once"
            return [f"{key.job}/{key.task} would be ended {how} ({reason})"]
        case NudgeTask(key, reason):
            return [f"{key.job}/{key.task} would be asked to end ({reason})"]
        case ForgetJob(key):
            return [f"{key.name} would be deleted with its logs, checkpoints and outputs"]
        case _:
            return []


def _placed(task: Task) -> str:
    devices = f" with {phrase.listing(task.devices)}" if task.devices else ""
    return f"{task.key.task} on {task.node or 'any node'}{devices} ({needs(task.need)})"
