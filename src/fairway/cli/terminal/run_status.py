"""The status lines of a run, made from its API view. No I/O."""

from __future__ import annotations

import itertools

from fairway.units.quantity import show_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_BARS = "▁▂▃▄▅▆▇█"
_KEPT = 400
_CURVE = 24
OVER = ("Succeeded", "Failed", "Stopped")


class RunStatusLines:
    """The latest view of a run, and the curve of its main metric."""

    def __init__(self) -> None:
        self.job: dict[str, Any] = {}
        self.curve: list[float] = []
        self._step: int | None = None

    def take(self, job: dict[str, Any]) -> None:
        """Take a new view of the run."""
        self.job = {**self.job, **job}
        progress = job.get("progress") or {}
        name = main_metric(progress.get("metrics") or {})
        value = (progress.get("metrics") or {}).get(name)
        if value is not None and progress.get("step") != self._step:
            self._step = progress.get("step")
            self.curve.append(value)
            if len(self.curve) > _KEPT:
                del self.curve[::2]

    def lines(self, now: float) -> list[str]:
        """Return the status lines; empty before the first view."""
        if not self.job:
            return []
        rows = [self._headline(now), self._numbers(), self._tasks()]
        hold = self.job.get("hold")
        if hold and self.job.get("phase") not in ("Running", *OVER):
            helps = f"; {hold['what_would_help']}" if hold.get("what_would_help") else ""
            rows.append(f"waits: {hold['message']}{helps}")
        stall = (self.job.get("progress") or {}).get("stall")
        if stall:
            rows.append(f"seems to hang: {stall}")
        return [row for row in rows if row]

    def _headline(self, now: float) -> str:
        job, progress = self.job, self.job.get("progress") or {}
        parts = [job["name"], job["phase"]]
        if job.get("started"):
            parts.append(show_seconds(max(0.0, (job.get("finished") or now) - job["started"])))
        if progress.get("step") is not None:
            goal = f"/{progress['at_step']:,}" if progress.get("at_step") else ""
            parts.append(f"step {progress['step']:,}{goal}")
        if progress.get("steps_per_second"):
            parts.append(f"{progress['steps_per_second']:.3g} steps/s")
        if progress.get("remaining") is not None and progress.get("time"):
            parts.append(f"{show_seconds(max(0.0, progress['remaining']))} left")
        if job.get("restarts"):
            parts.append(f"{job['restarts']} of {job['restarts_max']} restarts")
        return "  ".join(parts)

    def _numbers(self) -> str:
        metrics = (self.job.get("progress") or {}).get("metrics") or {}
        first = main_metric(metrics)
        if not first:
            return ""
        parts = [f"{first} {show_value(metrics[first])} {sparkline(self.curve, _CURVE)}"]
        parts += [f"{name} {show_value(value)}" for name, value in metrics.items() if name != first]
        return "  ".join(parts)

    def _tasks(self) -> str:
        tasks = self.job.get("tasks") or []
        if len(tasks) < 2:
            return ""
        if len(tasks) <= 6:
            return "  ".join(f"{task['name']} {task['phase']}" for task in tasks)
        counts: dict[str, int] = {}
        for task in tasks:
            counts[f"{task['role']} {task['phase']}"] = counts.get(f"{task['role']} {task['phase']}", 0) + 1
        return "  ".join(f"{number} {group}" for group, number in counts.items())


def main_metric(metrics: dict[str, float | None]) -> str:
    """Return the metric whose curve is drawn: the loss if there is one, else the first."""
    for name in metrics:
        if name == "loss":
            return name
    for name in metrics:
        if "loss" in name:
            return name
    return next(iter(metrics), "")


def show_value(value: float | None) -> str:
    """Format a value with at most four digits; None, which JSON carries for not-a-number, becomes `nan`."""
    return "nan" if value is None else f"{value:.4g}"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the curve in one line: each bar is the mean of an equal share of the values."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [len(values) * position // count for position in range(count + 1)]
    means = [sum(values[left:right]) / (right - left) for left, right in itertools.pairwise(edges)]
    finite = [value for value in means if value - value == 0]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] if value - value == 0 else "×" for value in means)


def restarted(before: dict[str, Any], job: dict[str, Any]) -> str:
    """Return the line for a run that restarted between two views: the reason and the resume point; empty if it did not."""
    attempt = _attempt(job)
    if not before or attempt <= _attempt(before):
        return ""
    reason = (job.get("outcome") or {}).get("message") or (job.get("hold") or {}).get("message") or ""
    spent = f"{job['restarts']} of {job['restarts_max']} restarts used" if job.get("restarts") else ""
    parts = [f"fairway: {job['name']} starts again, attempt {attempt + 1}", reason, job.get("resume") or "", spent]
    return "; ".join(part for part in parts if part)


def _attempt(job: dict[str, Any]) -> int:
    """Return the run's attempt, or that of a task that was restarted alone, whichever is higher."""
    return max([int(job.get("attempt") or 0), *(int(task.get("attempt") or 0) for task in job.get("tasks") or [])])


NOT_STARTED = 125
"""Exit code of `run` for a program that Fairway could not start, as with `docker run`."""


def exit_code(job: dict[str, Any]) -> int:
    """Return the exit code of `run`: the program's own, or 128 plus its signal; 1 if one of several tasks failed."""
    tasks = job.get("tasks") or []
    if job.get("phase") == "Succeeded":
        return 0
    if tasks and not any(task.get("started") for task in tasks):
        return 1 if job.get("phase") == "Stopped" else NOT_STARTED
    if len(tasks) != 1:
        return 130 if (job.get("outcome") or {}).get("reason") == "Interrupted" else 1
    code, number = tasks[0].get("exit_code"), tasks[0].get("exit_signal")
    # A program that exits with 0 on SIGTERM did not finish, and a lost one has no known exit code: both give 1.
    return 128 + number if number else code or 1


def farewell(job: dict[str, Any]) -> str:
    """Return the closing message: how the run ended, where the logs are, and the next command."""
    name, phase, outcome = job["name"], job["phase"], job.get("outcome") or {}
    spent = f" after {show_seconds(job['duration'])}" if job.get("duration") is not None else ""
    step = (job.get("progress") or {}).get("step")
    at = f", at step {step:,}" if step is not None else ""
    logs = f"logs: fairway logs {name}"
    reason = f": {outcome['message']}" if outcome.get("message") else ""
    if phase == "Succeeded":
        outputs = f"; outputs: {job['folder']}/outputs" if job.get("outputs") and job.get("folder") else ""
        return f"{name} succeeded{spent}{at}{outputs}; {logs}"
    if phase == "Stopped":
        return f"{name} was stopped{spent}{at}; {logs}; to continue: fairway resume {name}"
    if phase == "Failed":
        return f"{name} failed{spent}{at}{reason}; {logs}; next: fairway why {name}"
    return f"{name} is {phase}{spent}{at}; {logs}"
