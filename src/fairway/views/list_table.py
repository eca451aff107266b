"""Tables of runs, tasks, nodes, devices, events, metrics and secrets. Pure: (views, now, page) to text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairway.state.phase import JobPhase
from fairway.units import quantity
from fairway.views.event import EventView
from fairway.views.job import JobList, JobView, TaskView
from fairway.views.metric import MetricList
from fairway.views.node import DeviceView, NodeView
from fairway.views.secret import SecretView
from fairway.views.text import phrase
from fairway.views.text.table import Column, TextPage, table

_JOBS = (
    Column("NAMESPACE"),
    Column("NAME", always=True),
    Column("PHASE", phase=True),
    Column("READY", right=True),
    Column("GPUS", right=True),
    Column("AGE", right=True),
    Column("TIME", right=True),
    Column("QUEUE"),
    Column("PRIORITY", right=True),
    Column("RESTARTS", right=True),
    Column("USER"),
    Column("NODES", loose=True),
    Column("COMMAND", loose=True),
    Column("DETAIL", loose=True),
)


SORTS = ("name", "created", "started", "finished", "duration", "phase", "priority", "gpus", "user", "queue")
"""The fields by which runs can be sorted."""


def sorted_jobs(jobs: Sequence[JobView], key: str) -> tuple[JobView, ...]:
    """Sort runs by a field, smallest first; `-duration` for the reverse. Runs without a value come last."""
    name = key.lstrip("-")
    with_value = [job for job in jobs if getattr(job, name) is not None]
    without_value = [job for job in jobs if getattr(job, name) is None]
    return (*sorted(with_value, key=lambda job: _sort_value(job, name), reverse=key.startswith("-")), *without_value)


def _sort_value(job: JobView, name: str) -> tuple[Any, ...]:
    return (job.series, job.number) if name == "name" else (getattr(job, name), job.series, job.number)


def jobs_text(page_of: JobList, now: float, page: TextPage = TextPage(), *, filtered: bool = False) -> str:
    """Return the text of `fairway list`, newest first; without runs, a hint at the next command."""
    if not page_of.jobs:
        if filtered:
            return "No runs match. See all of them with: fairway list\n"
        return "No runs yet. Start one with: fairway run -- python train.py\n"
    spaces = {job.namespace for job in page_of.jobs}
    text = table(_JOBS, [_job_row(job, now, wide=page.wide, spaces=len(spaces) > 1) for job in page_of.jobs], page)
    if page_of.next:
        rest = page_of.total - len(page_of.jobs)
        more = f"{rest:,} more" if rest > 0 else "more"
        text += page.paint(f"... {more}; see them with: fairway list --limit {page_of.total}\n", "dim")
    return text


def _job_row(job: JobView, now: float, *, wide: bool, spaces: bool) -> list[str]:
    busy = not job.phase.over and job.phase is not JobPhase.PENDING
    return [
        job.namespace if spaces else "",
        job.name,
        job.phase.value,
        f"{job.ready}/{job.replicas}" if busy else "-",
        quantity.show_number(job.gpus) if job.gpus else "-",
        phrase.age(job.created, now),
        phrase.span(job.duration),
        job.queue if wide else "",
        str(job.priority) if wide and job.priority else "",
        f"{job.restarts}/{job.restarts_max}" if job.restarts else "",
        job.user if wide else "",
        ",".join(job.nodes) if wide else "",
        next((role.command for role in job.roles.values()), "") if wide else "",
        job_detail(job),
    ]


def job_detail(job: JobView) -> str:
    """Return the most important fact about a run: its progress, why it waits, or how it ended."""
    if job.phase is JobPhase.PENDING:
        reason = job.hold.message if job.hold else "just submitted"
        return f"{reason} (number {job.position} in line)" if job.position > 1 else reason
    if job.phase in (JobPhase.FAILED, JobPhase.RESTARTING, JobPhase.STOPPING) and job.outcome:
        return first_line(job.outcome.message or job.outcome.reason)
    if job.phase is JobPhase.STARTING and job.hold:
        return job.hold.message
    if job.progress.stall:
        return f"seems to hang: {job.progress.stall}"
    return progress_words(job)


def progress_words(job: JobView) -> str:
    """Return the progress in words: `step 1,200 of 2,000, loss 0.31`."""
    progress = job.progress
    parts = []
    if progress.step is not None:
        goal = f" of {progress.at_step:,}" if progress.at_step and not job.phase.over else ""
        parts.append(f"step {progress.step:,}{goal}")
    parts.extend(f"{name} {phrase.measure(value)}" for name, value in progress.metrics.items())
    return ", ".join(parts)


def first_line(text: str) -> str:
    """Return the first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


_TASKS = (
    Column("TASK", always=True),
    Column("ATTEMPT", right=True),
    Column("PHASE", phase=True),
    Column("NODE", loose=True),
    Column("GPUS", loose=True),
    Column("CPU", right=True),
    Column("MEMORY", right=True),
    Column("PROCESSES", right=True),
    Column("ADDRESS"),
    Column("TIME", right=True),
    Column("END"),
    Column("DETAIL", loose=True),
)


def tasks_text(tasks: Sequence[TaskView], page: TextPage = TextPage(), *, indent: str = "") -> str:
    """Return a table of the tasks of a run."""
    attempts = any(task.attempt for task in tasks)
    rows = [
        [
            task.name,
            str(task.attempt) if attempts else "",
            task.phase.value,
            task.node,
            ",".join(short_device(name) for name in task.devices),
            quantity.show_number(task.cpu) if page.wide else "",
            quantity.show_bytes(task.memory) if page.wide and task.memory else "",
            str(max(task.processes, task.slots)) if max(task.processes, task.slots) > 1 else "",
            task.address if page.wide else "",
            phrase.span(task.duration),
            task.exit if task.exit != "exit 0" else "",
            first_line(task.message),
        ]
        for task in tasks
    ]
    return table(_TASKS, rows, page, indent)


def short_device(uuid: str) -> str:
    """Return enough of a UUID to distinguish devices: `GPU-1a2b3c4d`."""
    return uuid if len(uuid) <= 16 else uuid[:12]


_NODES = (
    Column("NODE", always=True),
    Column("CPU FREE", right=True),
    Column("MEMORY FREE", right=True),
    Column("GPUS FREE", right=True),
    Column("GPU TYPE", loose=True),
    Column("OTHER FREE", loose=True),
    Column("LABELS", loose=True),
    Column("TASKS", loose=True),
)


def nodes_text(nodes: Sequence[NodeView], page: TextPage = TextPage()) -> str:
    """Return the text of `fairway top node`: free and total capacity by resource; if wide, the devices below."""
    if not nodes:
        return "No nodes. The daemon found no machine to run on; `fairway daemon status` shows where its log is\n"
    rows = [
        [
            node.name,
            f"{node.cpu_free:.3g} of {quantity.show_number(node.cpu)}",
            f"{quantity.show_bytes(node.memory_free)} of {quantity.show_bytes(node.memory)}",
            f"{quantity.show_number(node.gpus_free)} of {node.gpus}" if node.gpus else "",
            ", ".join(dict.fromkeys(device.type for device in node.devices if device.type)),
            ", ".join(f"{name} {node.other_free[name]} of {total}" for name, total in node.other.items()),
            ",".join(f"{name}={value}" for name, value in node.labels.items()) if page.wide else "",
            ", ".join(node.tasks),
        ]
        for node in nodes
    ]
    text = table(_NODES, rows, page)
    devices = [(node.name, device) for node in nodes for device in node.devices]
    return text + "\n" + devices_text(devices, page) if page.wide and devices else text


_DEVICES = (
    Column("NODE"),
    Column("GPU", right=True, always=True),
    Column("TYPE", loose=True),
    Column("MEMORY", right=True),
    Column("FREE", right=True),
    Column("STATE"),
    Column("USED BY", loose=True),
    Column("UUID"),
)


def devices_text(devices: Sequence[tuple[str, DeviceView]], page: TextPage = TextPage()) -> str:
    """Return a table with one line per device."""
    rows = [
        [
            node,
            str(device.index),
            device.type,
            quantity.show_bytes(device.memory) if device.memory else "",
            f"{device.free:.0%}",
            "sick" if not device.healthy else "busy" if device.busy_with else "used" if device.used else "free",
            ", ".join((*device.used_by, device.busy_with)) if device.busy_with else ", ".join(device.used_by),
            device.uuid,
        ]
        for node, device in devices
    ]
    return table(_DEVICES, rows, page)


_EVENTS = (Column("AGE", right=True, always=True), Column("REASON"), Column("SUBJECT"), Column("MESSAGE", loose=True))


def events_text(events: Sequence[EventView], now: float, page: TextPage = TextPage(), run: str = "") -> str:
    """Return the text of `fairway events`, oldest first. With `run`, subjects are shown without the run's name."""
    if not events:
        return "No events.\n"
    rows = [
        [
            phrase.age(event.time, now),
            event.reason,
            event.subject.removeprefix(run).lstrip("/") if run else event.subject,
            event.message,
        ]
        for event in events
    ]
    return table(_EVENTS, rows, page)


_TOP = (
    Column("NAME", always=True),
    Column("PHASE", phase=True),
    Column("READY", right=True),
    Column("CPU", right=True),
    Column("MEMORY", right=True),
    Column("GPUS", right=True),
    Column("STEP", right=True),
    Column("STEPS/S", right=True),
    Column("LEFT", right=True),
    Column("METRICS", loose=True),
)


def top_text(jobs: Sequence[JobView], page: TextPage = TextPage()) -> str:
    """Return the text of `fairway top job`: use and allocation of active runs, and their speed."""
    if not jobs:
        return "Nothing runs. Start something with: fairway run -- python train.py\n"
    return table(_TOP, [_top_row(job) for job in jobs], page)


def _sum(used: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if none is known."""
    known_values = [value for value in used if value is not None]
    return sum(known_values) if known_values else None


def _of(used: float | None, show: Callable[[float], str], held: str) -> str:
    """Return use and allocation: `0.97 of 1`."""
    if used is None:
        return held or "-"
    return f"{show(used)} of {held}" if held else show(used)


def _top_row(job: JobView) -> list[str]:
    tasks = [task for task in job.tasks if task.phase.holds_resources] if isinstance(job.tasks, tuple) else []
    progress = job.progress
    memory, held = sum(task.memory for task in tasks), sum(task.cpu for task in tasks)
    return [
        job.name,
        job.phase.value,
        f"{job.ready}/{job.replicas}",
        _of(_sum(task.cpu_used for task in tasks), "{:.2f}".format, quantity.show_number(round(held, 2)) if tasks else ""),
        _of(_sum(task.memory_used for task in tasks), quantity.show_bytes, quantity.show_bytes(memory) if memory else ""),
        quantity.show_number(sum(task.gpu for task in tasks)) if any(task.gpu for task in tasks) else "-",
        f"{progress.step:,}" if progress.step is not None else "-",
        phrase.measure(progress.steps_per_second) if progress.steps_per_second else "-",
        phrase.span(progress.remaining),
        ", ".join(f"{name} {phrase.measure(value)}" for name, value in progress.metrics.items()),
    ]


def metrics_text(metrics: MetricList, page: TextPage = TextPage()) -> str:
    """Return the text of `fairway metrics`: step, task, then a column for each metric."""
    if not metrics.points:
        return "No metrics yet. Report some with: fairway.report(step=..., loss=...)\n"
    tasks = {point.task for point in metrics.points}
    columns = (Column("STEP", right=True, always=True), Column("TASK"), *(Column(name, right=True) for name in metrics.names))
    rows = [
        [
            "-" if point.step is None else f"{point.step:,}",
            point.task if len(tasks) > 1 else "",
            *(phrase.measure(point.metrics[name]) if name in point.metrics else "" for name in metrics.names),
        ]
        for point in metrics.points
    ]
    return table(columns, [*rows, *_summary_rows(metrics)], page)


def _summary_rows(metrics: MetricList) -> list[list[str]]:
    """Return the rows below the points: last and best value of each metric, and min and max if its direction is unknown."""
    shown = [metrics.summary.get(name) for name in metrics.names]
    rows: dict[str, list[float | None]] = {
        "best": [summary.best if summary else None for summary in shown],
        "min": [summary.min if summary and not summary.goal else None for summary in shown],
        "max": [summary.max if summary and not summary.goal else None for summary in shown],
    }
    last = ["last", "", *(phrase.measure(summary.last) if summary else "" for summary in shown)]
    return [last] + [
        [title, "", *("" if value is None else phrase.measure(value) for value in values)]
        for title, values in rows.items()
        if any(value is not None for value in values)
    ]


def secrets_text(secrets: Sequence[SecretView], page: TextPage = TextPage()) -> str:
    """Return the text of `fairway secret list`."""
    if not secrets:
        return "No secrets. Keep one with: fairway secret set HF_TOKEN\n"
    return table((Column("NAME", always=True),), [[secret.name] for secret in secrets], page)
