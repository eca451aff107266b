"""How numbers, times and ends are said in words."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence

from fairway.state.job import Resume
from fairway.state.task import Exit
from fairway.units import quantity


def span(seconds: float | None) -> str:
    """`3m20s`; a dash when there is none."""
    return "-" if seconds is None else quantity.show_seconds(max(0.0, seconds))


def age(time: float | None, now: float) -> str:
    """How long ago, in the one unit that matters: `45s`, `12m`, `5h`, `3d`."""
    if time is None:
        return "-"
    passed = max(0, int(now - time))
    for size, unit in ((86400 * 2, "d"), (3600 * 2, "h"), (120, "m")):
        if passed >= size:
            return f"{passed // {'d': 86400, 'h': 3600, 'm': 60}[unit]}{unit}"
    return f"{passed}s"


def ago(time: float, now: float) -> str:
    """`5m ago`, `just now`."""
    return f"{age(time, now)} ago" if now - time >= 1 else "just now"


def count(number: int, noun: str) -> str:
    """`1 worker`, `2 workers`, `1,200 steps`; a role called `ps` has no plural."""
    return f"{number:,} {noun}" if number == 1 or noun.endswith("s") else f"{number:,} {noun}s"


def listing(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def measure(value: float | None) -> str:
    """A metric's value in at most four digits: `0.3142`, `1.2e-05`, `12,345`."""
    if value is None or not math.isfinite(value):
        return "nan" if value is None or math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def resume(given: Resume) -> str:
    """From where the attempt went on, and what that cost."""
    work = f"{_whole(given.lost_seconds)} of work" if given.lost_seconds is not None else ""
    steps = count(given.lost_steps, "step") if given.lost_steps else ""
    lost = f", lost {steps} ({work})" if steps and work else f", lost {steps or work}" if steps or work else ""
    if given.step is None:
        return f"no checkpoint found: restarted from 0{lost}"
    return f"resumed from step {given.step:,}{lost}"


def _whole(seconds: float) -> str:
    return quantity.show_seconds(round(seconds)) if seconds >= 1 else "less than 1s"


def exit_of(end: Exit) -> str:
    """`exit 1`, `SIGKILL`, `out of memory`; a dash when nobody knows."""
    if end.out_of_memory:
        return "out of memory"
    if end.signal is not None:
        return signal_name(end.signal)
    return f"exit {end.code}" if end.code is not None else "-"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
