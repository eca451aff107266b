"""Numbers, times and task exits in words."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence

from fairway.state.job import ResumePoint
from fairway.state.stall import RunStall
from fairway.state.task import TaskExit
from fairway.units import quantity


def span(seconds: float | None) -> str:
    """Return a duration as `3m20s`; a dash for None."""
    return "-" if seconds is None else quantity.show_seconds(max(0.0, seconds))


def age(time: float | None, now: float) -> str:
    """Return the time since `time` in a single unit: `45s`, `12m`, `5h`, `3d`."""
    if time is None:
        return "-"
    passed = max(0, int(now - time))
    for size, unit in ((86400 * 2, "d"), (3600 * 2, "h"), (120, "m")):
        if passed >= size:
            return f"{passed // {'d': 86400, 'h': 3600, 'm': 60}[unit]}{unit}"
    return f"{passed}s"


def ago(time: float, now: float) -> str:
    """Return `5m ago` or `just now`."""
    return f"{age(time, now)} ago" if now - time >= 1 else "just now"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 worker`, `2 workers`, `1,200 steps`; a role named `ps` has no plural."""
    return f"{number:,} {noun}" if number == 1 or noun.endswith("s") else f"{number:,} {noun}s"


def listing(words: Sequence[str]) -> str:
    """Join words: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def measure(value: float | None) -> str:
    """Return a metric's value in at most four digits: `0.3142`, `1.2e-05`, `12,345`."""
    if value is None or not math.isfinite(value):
        return "nan" if value is None or math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def resume(given: ResumePoint) -> str:
    """Return the step from which an attempt resumed and the lost work; without a known checkpoint, state that."""
    work = f"{_whole(given.lost_seconds)} of work" if given.lost_seconds is not None else ""
    steps = count(given.lost_steps, "step") if given.lost_steps else ""
    lost = f"{steps} ({work})" if steps and work else steps or work
    if given.step is None:
        unknown = "started again; from which step is not known, since no checkpoint is known"
        return f"{unknown}; at most {lost} lost" if lost else unknown
    return f"resumed from step {given.step:,}" + (f", lost {lost}" if lost else "")


def _whole(seconds: float) -> str:
    return quantity.show_seconds(round(seconds)) if seconds >= 1 else "less than 1s"


def stall(found: RunStall, now: float) -> str:
    """Return the stall in words: `worker-1 has used no CPU and printed nothing for 12m while worker-0 waits`."""
    quiet = span(now - found.since)
    if not found.idle:
        took = f" (a step took {span(found.step_seconds)})" if found.step_seconds else ""
        return f"nothing was printed or reported for {quiet}{took}, but all ranks use CPU"
    if not found.busy:
        subject = found.idle[0] if len(found.idle) == 1 else f"none of {listing(found.idle[:4])}"
        predicate = "has used no CPU and printed nothing" if len(found.idle) == 1 else "has used CPU or printed anything"
        return f"{subject} {predicate} for {quiet}"
    more = f" and {len(found.idle) - 3} more" if len(found.idle) > 4 else ""
    idle = listing(found.idle[: 3 if more else 4]) + more
    have = "has" if len(found.idle) == 1 else "have"
    busy = listing(found.busy) if len(found.busy) <= 3 else f"the other {len(found.busy)}"
    return f"{idle} {have} used no CPU and printed nothing for {quiet} while {busy} {'waits' if len(found.busy) == 1 else 'wait'}"


def removed(task: str, count: int, limit: str) -> str:
    """Return the notice that the oldest output of a task was removed because of the limit."""
    size = quantity.show_bytes(count)
    return f"the oldest {size} that {task} printed were removed (limit {limit}; to keep more: --log-limit or keep.log_size)"


def not_a_number(name: str, step: int | None) -> str:
    """Return `loss is NaN since step 120`."""
    return f"{name} is NaN" + (f" since step {step:,}" if step is not None else "")


def exit_of(end: TaskExit) -> str:
    """Return `exit 1`, `SIGKILL` or `out of memory`; a dash if unknown."""
    if end.out_of_memory:
        return "out of memory"
    if end.signal is not None:
        return signal_name(end.signal)
    return f"exit {end.code}" if end.code is not None else "-"


def signal_name(number: int) -> str:
    """Return the name of a signal: `SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
