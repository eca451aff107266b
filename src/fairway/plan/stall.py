"""Detect whether a run seems to hang, from samples of its ranks and from its reports.

A stall is only displayed; the run is never ended for it. A run stalls when no rank has printed and nothing was reported
for `limit` seconds, and
- at least one rank has used no CPU in that time, or
- steps were reported before, so that the next one is overdue.

Where steps are reported, the limit is ten times the median step, but at least one minute; else it is `after`, by default ten
minutes. Ranks that wait while others print (a parameter server, an evaluator) are no stall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from fairway.state.stall import RankSample, RunStall

AFTER = 600.0
"""Limit in seconds where no step is known."""
LEAST = 60.0
"""Minimum limit in seconds where steps are known: evaluations and checkpoints take longer than a step."""
STEPS = 10
"""Limit as a multiple of the median step."""
IDLE = 0.05
"""CPU use in cores below which a rank counts as idle: background threads use a little."""
_KEPT = 31


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The recorded state of a rank."""

    cpu_seconds: float
    looked: float
    active: float
    """When a sample last showed CPU use."""
    printed: float | None
    wakeups: int | None
    woken: float
    """When its wake-up counter last changed, i.e. when it last ran, however briefly."""


@dataclass(frozen=True, slots=True)
class ActivityTrace:
    """The recorded state of one attempt of a run."""

    begun: float
    ranks: Mapping[str, RankTrace] = field(default_factory=dict)
    steps: tuple[float, ...] = ()
    """Durations of the last steps, in seconds."""
    step: int | None = None
    reported: float | None = None
    """When the last report came."""


def look(trace: ActivityTrace, sights: Iterable[RankSample], now: float) -> ActivityTrace:
    """Return the trace updated by a sample of the ranks; ranks that no longer exist are removed."""
    ranks = {}
    for sight in sights:
        before = trace.ranks.get(sight.name)
        if before is None:
            ranks[sight.name] = RankTrace(sight.cpu_seconds, now, now, sight.printed, sight.wakeups, now)
            continue
        used = sight.cpu_seconds - before.cpu_seconds
        # Less CPU time than before: the process was restarted.
        is_active = sight.computes or used < 0 or used >= IDLE * (now - before.looked)
        active = now if is_active else before.active
        woken = before.woken if sight.wakeups is not None and sight.wakeups == before.wakeups else now
        ranks[sight.name] = RankTrace(sight.cpu_seconds, now, active, sight.printed, sight.wakeups, woken)
    return replace(trace, ranks=ranks)


def report(trace: ActivityTrace, points: Iterable[tuple[float, int | None]]) -> ActivityTrace:
    """Return the trace updated by reports, given as (time, step) in order of time."""
    for time, step in points:
        if trace.reported is not None and step is not None and trace.step is not None and step > trace.step:
            seconds = max(0.0, time - trace.reported) / (step - trace.step)
            trace = replace(trace, steps=(*trace.steps, seconds)[-_KEPT:])
        trace = replace(trace, reported=time, step=trace.step if step is None else step)
    return trace


def limit(trace: ActivityTrace, after: float = AFTER) -> float:
    """Return the seconds without output or report after which the run seems to hang."""
    return max(min(LEAST, after), STEPS * median(trace.steps)) if trace.steps else after


def judge(trace: ActivityTrace, now: float, after: float = AFTER) -> RunStall | None:
    """Return the stall; None when there is none, or when it cannot be determined yet."""
    if not trace.ranks:
        return None
    longest = limit(trace, after)
    since = last_sign(trace)
    if now - since < longest:
        return None
    idle = tuple(name for name, rank in trace.ranks.items() if now - rank.active >= longest)
    if not idle and not trace.steps:
        return None
    if len(idle) == len(trace.ranks):
        # All ranks are idle. Ranks that poll wait for the one that does not run at all.
        idle = tuple(name for name in idle if now - trace.ranks[name].woken >= longest) or idle
    busy = tuple(name for name in trace.ranks if name not in idle)
    return RunStall(since, idle, busy, median(trace.steps) if trace.steps else None)


def last_sign(trace: ActivityTrace) -> float:
    """Return the time of the last output or report, else when the trace began."""
    printed = [rank.printed for rank in trace.ranks.values() if rank.printed is not None]
    return max([*printed, *([] if trace.reported is None else [trace.reported])], default=trace.begun)
