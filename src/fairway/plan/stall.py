"""Whether a run seems to hang, from looks at its ranks and from its reports. It is shown, and never ended for it.

A run stalls when no rank has printed and nothing was reported for `limit` seconds, and
- one rank at least has used no CPU in that time, or
- steps were reported before, so that it is known that one is overdue.

The limit is ten times the median step, one minute at least, where steps are reported; else `after`, ten minutes unless set.
Ranks that wait while others print (a parameter server, an evaluator) are no stall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from fairway.state.activity import RankSight, Stall

AFTER = 600.0
"""Seconds without a sign of life where no step is known."""
LEAST = 60.0
"""Seconds where steps are known, at the least: evaluations and checkpoints take longer than a step."""
STEPS = 10
"""Median steps without a sign of life."""
IDLE = 0.05
"""Cores; a rank that uses less does nothing: threads that only watch take a little."""
_KEPT = 31


@dataclass(frozen=True, slots=True)
class Rank:
    """What is remembered of a rank."""

    cpu_seconds: float
    looked: float
    active: float
    """When it used CPU last, as far as looks can tell."""
    printed: float | None
    wakeups: int | None
    woken: float
    """When it was seen to have run last, for however short a time."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What is remembered of one attempt of a run."""

    begun: float
    ranks: Mapping[str, Rank] = field(default_factory=dict)
    steps: tuple[float, ...] = ()
    """Seconds that the last steps took, each."""
    step: int | None = None
    reported: float | None = None
    """When the last report came."""


def look(trace: Trace, sights: Iterable[RankSight], now: float) -> Trace:
    """The trace after a look at the ranks; those that are gone are forgotten."""
    ranks = {}
    for seen in sights:
        before = trace.ranks.get(seen.name)
        if before is None:
            ranks[seen.name] = Rank(seen.cpu_seconds, now, now, seen.printed, seen.wakeups, now)
            continue
        used = seen.cpu_seconds - before.cpu_seconds
        # Less than before: a process that was started anew.
        works = seen.computes or used < 0 or used >= IDLE * (now - before.looked)
        active = now if works else before.active
        woken = before.woken if seen.wakeups is not None and seen.wakeups == before.wakeups else now
        ranks[seen.name] = Rank(seen.cpu_seconds, now, active, seen.printed, seen.wakeups, woken)
    return replace(trace, ranks=ranks)


def report(trace: Trace, points: Iterable[tuple[float, int | None]]) -> Trace:
    """The trace after reports, as (time, step) in order of time."""
    for time, step in points:
        if trace.reported is not None and step is not None and trace.step is not None and step > trace.step:
            each = max(0.0, time - trace.reported) / (step - trace.step)
            trace = replace(trace, steps=(*trace.steps, each)[-_KEPT:])
        trace = replace(trace, reported=time, step=trace.step if step is None else step)
    return trace


def limit(trace: Trace, after: float = AFTER) -> float:
    """Seconds without a sign of life after which the run seems to hang."""
    return max(min(LEAST, after), STEPS * median(trace.steps)) if trace.steps else after


def judge(trace: Trace, now: float, after: float = AFTER) -> Stall | None:
    """How the run stalls; None when it does not, or when that cannot be known yet."""
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
        # All wait. Those that poll wait for the one that does not run at all.
        idle = tuple(name for name in idle if now - trace.ranks[name].woken >= longest) or idle
    busy = tuple(name for name in trace.ranks if name not in idle)
    return Stall(since, idle, busy, median(trace.steps) if trace.steps else None)


def last_sign(trace: Trace) -> float:
    """When something was printed or reported last, or the trace began."""
    printed = [rank.printed for rank in trace.ranks.values() if rank.printed is not None]
    return max([*printed, *([] if trace.reported is None else [trace.reported])], default=trace.begun)
