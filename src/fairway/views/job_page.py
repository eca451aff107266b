"""The detail page of a run: `fairway get NAME`. Pure: (view, points, now) to text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import msgspec

from fairway.state.phase import JobPhase
from fairway.views.diagnosis.run_explanation import RunExplanationView
from fairway.views.diagnosis.waiting_run import waiting_lines
from fairway.views.fault import fault_line
from fairway.views.job import JobView, TaskView
from fairway.views.list_table import first_line, tasks_text
from fairway.views.metric import MetricSample, best_words, curves
from fairway.views.text import phrase
from fairway.views.text.curve import bar, plot, sparkline
from fairway.views.text.table import TextPage, display_width, shorten

_INDENT = "  "
_TAIL_LINES = 20
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_CHART_FROM = 60
"""Terminal width below which no chart is drawn."""
_CHART_POINTS = 8
"""Number of points below which no chart is drawn."""


def detail_text(job: JobView, points: Iterable[MetricSample], now: float, page: TextPage = TextPage()) -> str:
    """Return state, progress, tasks, reason or outcome, checkpoint, folder, and the next commands."""
    sections = [
        _head(job, now, page),
        _warnings(job, page),
        _faults(job, now, page),
        _why(job, page),
        _progress(job, points, now, page),
        _logged(job, page),
        _tasks(job, page),
        _checkpoint(job, now, page),
        _places(job, page),
        _next(job, page),
    ]
    return "\n".join(section for section in sections if section)


def why_text(why: RunExplanationView, now: float, page: TextPage = TextPage()) -> str:
    """Return the text of `fairway why NAME`."""
    since = f" for {phrase.span(now - why.since)}" if why.since is not None and not why.phase.over else ""
    lines = [f"{page.paint(why.name, 'bold')} is {page.phase(why.phase.value)}{since}: {why.message}"]
    if why.waiting is not None:
        lines.extend(_INDENT + line for line in waiting_lines(why.waiting, page))
    elif why.position:
        lines.append(f"{_INDENT}place in the queue: {why.position}")
    lines.extend(f"{_INDENT}{fault_line(fault, now)}" for fault in why.faults)
    if why.what_would_help and not (why.waiting is not None and why.waiting.changes):
        lines.append(f"{_INDENT}what would help: {why.what_would_help}")
    return "\n".join([*lines, *_tail_lines(why.tail, page)]) + "\n"


def _head(job: JobView, now: float, page: TextPage) -> str:
    state = page.phase(job.phase.value)
    if job.phase.over:
        state += f" {phrase.ago(job.finished, now)}" if job.finished is not None else ""
        state += f", ran for {phrase.span(job.duration)}" if job.duration is not None else ", never ran"
    elif job.duration is not None:
        state += f" for {phrase.span(job.duration)}"
    else:
        state += f" for {phrase.span(now - job.created)}"
    if job.restarts:
        state += f", {phrase.count(job.restarts, 'restart')} of at most {job.restarts_max}"
    if job.attempt > job.restarts:
        # Attempts outside the restart budget are not restarts: preemption, a lost node, a resume by the user.
        state += f", attempt {job.attempt + 1}"
    prefix = f"{job.namespace}/" if job.namespace != "default" else ""
    lines = [f"{page.paint(prefix + job.name, 'bold')}  {state}"]
    for name, role in job.roles.items():
        role_label = "" if role.replicas == 1 and len(job.roles) == 1 else f"{phrase.count(role.replicas, name)}: "
        lines.append(_INDENT + _cut(f"{role_label}{role.command}", page))
    facts = [fact for fact in (_framework(job), _queue(job), f"by {job.user}" if job.user else "") if fact]
    if facts:
        lines.append(_INDENT + page.paint(", ".join(facts), "dim"))
    return "\n".join(lines) + "\n"


def _framework(job: JobView) -> str:
    return job.framework if job.framework not in ("auto", "command") else ""


def _queue(job: JobView) -> str:
    parts = [f"queue {job.queue}"] if job.queue != "default" else []
    if job.priority:
        parts.append(f"priority {job.priority}")
    return ", ".join(parts)


def _warnings(job: JobView, page: TextPage) -> str:
    return "".join(f"{page.paint('warning:', 'yellow')} {warning}\n" for warning in job.warnings)


def _faults(job: JobView, now: float, page: TextPage) -> str:
    if not job.faults:
        return ""
    lines = [_title("What is failing", page), *(_INDENT + fault_line(fault, now) for fault in job.faults)]
    return "\n".join(lines) + "\n"


def _why(job: JobView, page: TextPage) -> str:
    if job.hold is not None and not job.phase.over:
        lines = [_title("Why it waits", page), _INDENT + job.hold.message]
        if job.position:
            lines.append(f"{_INDENT}place in the queue: {job.position}")
        if job.hold.what_would_help:
            lines.append(f"{_INDENT}what would help: {job.hold.what_would_help}")
        return "\n".join(lines) + "\n"
    if job.outcome is None or (job.phase is JobPhase.SUCCEEDED and job.outcome.reason == "Completed"):
        return ""
    message = job.outcome.message or job.outcome.reason
    if job.phase in (JobPhase.RUNNING, JobPhase.STARTING):
        return f"{_title('Why it started again', page)}\n{_INDENT}{message} ({job.outcome.reason})\n"
    title = {JobPhase.FAILED: "Why it failed", JobPhase.STOPPED: "Why it stopped", JobPhase.SUCCEEDED: "Why it ended"}
    lines = [_title(title.get(job.phase, "What happened"), page), _INDENT + f"{message} ({job.outcome.reason})"]
    culprit = _culprit(job)
    if culprit is not None and culprit.tail:
        attempt = f", attempt {culprit.attempt}" if job.attempt or culprit.attempt else ""
        lines.append(f"{_INDENT}last lines of {culprit.name}{attempt}:")
        lines.extend(_tail_lines(culprit.tail, page))
    return "\n".join(lines) + "\n"


def _culprit(job: JobView) -> TaskView | None:
    if job.outcome is None or not isinstance(job.tasks, tuple) or not isinstance(job.earlier, tuple):
        return None
    same = [task for task in (*job.earlier, *job.tasks) if task.name == job.outcome.task and task.tail]
    return max(same, key=lambda task: task.attempt, default=None)


def _tail_lines(tail: str, page: TextPage) -> list[str]:
    """Return the last lines as a terminal would finally show them: progress bars in their last state, without colours."""
    plain = [_CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip() for line in tail.rstrip().split("\n")]
    return [f"{_INDENT}{page.paint('│', 'red')} {line}".rstrip() for line in plain[-_TAIL_LINES:]] if tail.strip() else []


def _progress(job: JobView, points: Iterable[MetricSample], now: float, page: TextPage) -> str:
    progress = job.progress
    if progress.step is None and not progress.metrics:
        return ""
    lines = [_title("Progress", page)]
    if progress.step is not None:
        lines.append(_INDENT + _step_line(job, now))
    metric_curves = curves(points)
    main = main_metric(progress.metrics)
    chart = _chart(main, metric_curves.get(main, []), page) if page.wide or page.width >= _CHART_FROM else []
    names = max((display_width(name) for name in progress.metrics), default=0)
    values = {name: phrase.measure(value) for name, value in progress.metrics.items()}
    room = max((len(value) for value in values.values()), default=0)
    for name, value in values.items():
        line = [y for _, y in metric_curves.get(name, [])]
        spark = "" if chart and name == main else sparkline(line)
        since = f"from {phrase.measure(line[0])}" if len(line) > 1 else ""
        best = best_words(progress.summary[name]) if name in progress.summary else ""
        lines.append(_INDENT + "   ".join(part for part in (f"{name:<{names}}  {value:>{room}}", spark, since, best) if part))
    return "\n".join([*lines, *chart]) + "\n"


def main_metric(metrics: Iterable[str]) -> str:
    """Return the metric to draw as a chart: the loss, else the first."""
    names = list(metrics)
    return next((name for name in names if "loss" in name.lower()), names[0] if names else "")


def _step_line(job: JobView, now: float) -> str:
    progress = job.progress
    assert progress.step is not None
    parts = [f"step {progress.step:,}"]
    if progress.at_step:
        fraction = progress.step / progress.at_step
        parts = [f"step {progress.step:,} of {progress.at_step:,}  {bar(fraction)} {min(1.0, fraction):.0%}"]
    if job.phase.over:
        return parts[0]
    if progress.steps_per_second:
        parts.append(f"{phrase.measure(progress.steps_per_second)} steps/s")
    if progress.remaining is not None:
        parts.append(f"about {phrase.span(round(progress.remaining))} left")
    if progress.time is not None and now - progress.time > 60:
        parts.append(f"last report {phrase.age(progress.time, now)} ago")
    return ", ".join(parts)


def _chart(name: str, points: Sequence[tuple[float, float]], page: TextPage) -> list[str]:
    """Return the chart of a metric, with its highest and lowest value at the left and its name below."""
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if len(finite) < _CHART_POINTS:
        return []
    top, bottom = max(y for _, y in finite), min(y for _, y in finite)
    room = max(len(phrase.measure(top)), len(phrase.measure(bottom)))
    lines = plot(finite, width=min(64, (page.width or 80) - room - 6))
    if not lines or top == bottom:
        return []
    labels = [phrase.measure(top), *[""] * (len(lines) - 2), phrase.measure(bottom)]
    rows = [f"{_INDENT}{label:>{room}} ┤{page.paint(line, 'cyan')}" for label, line in zip(labels, lines, strict=True)]
    return ["", *rows, f"{_INDENT}{'':>{room}}  {page.paint(name, 'dim')}"]


def _logged(job: JobView, page: TextPage) -> str:
    """Return the parameters and tags that the program logged. Those that MLflow clients add appear only in JSON."""
    groups = {"Parameters": job.params, "Tags": job.tags}
    sections = []
    for title, values in groups.items():
        shown = {} if isinstance(values, msgspec.UnsetType) else {k: v for k, v in values.items() if not k.startswith("mlflow.")}
        if shown:
            room = max(display_width(name) for name in shown)
            lines = [_cut(f"{name:<{room}}  {_CONTROL.sub('', value)}", page) for name, value in shown.items()]
            sections.append("\n".join([_title(title, page), *(_INDENT + line for line in lines)]) + "\n")
    return "\n".join(sections)


def _tasks(job: JobView, page: TextPage) -> str:
    if not isinstance(job.tasks, tuple) or not job.tasks or (job.phase is JobPhase.PENDING and not job.earlier):
        return ""
    shown = (*job.earlier, *job.tasks) if page.wide and isinstance(job.earlier, tuple) else job.tasks
    return _title("Tasks", page) + "\n" + tasks_text(shown, page, indent=_INDENT)


def _checkpoint(job: JobView, now: float, page: TextPage) -> str:
    progress = job.progress
    lines = []
    if job.resume:
        lines.append(job.resume)
    if progress.checkpoint_step is not None:
        ago = f", saved {phrase.ago(progress.checkpoint_time, now)}" if progress.checkpoint_time is not None else ""
        lines.append(f"newest: step {progress.checkpoint_step:,}{ago}")
    return "\n".join([_title("Checkpoint", page), *(_INDENT + line for line in lines)]) + "\n" if lines else ""


def _places(job: JobView, page: TextPage) -> str:
    facts = {
        "folder": job.folder,
        "outputs": ", ".join(f"{name} as {target}" for name, target in job.outputs.items()),
        "registered": ", ".join(job.models),
    }
    return "".join(f"{page.paint(f'{name}:', 'dim')} {value}\n" for name, value in facts.items() if value)


def _next(job: JobView, page: TextPage) -> str:
    name = job.name
    if job.phase is JobPhase.PENDING:
        commands = [f"fairway why {name}", f"fairway stop {name}"]
    elif not job.phase.over:
        commands = [f"fairway logs -f {name}", f"fairway stop {name}"]
    elif job.phase is JobPhase.SUCCEEDED:
        commands = [f"fairway logs {name}", f"fairway delete {name}"]
    else:
        commands = [f"fairway logs {name}", f"fairway resume {name}"]
    return f"{page.paint('next:', 'dim')} {', '.join(commands)}\n"


def _title(text: str, page: TextPage) -> str:
    return page.paint(text, "bold")


def _cut(text: str, page: TextPage) -> str:
    line = first_line(text)
    return shorten(line, page.width - len(_INDENT)) if page.width else line
