"""Time slicing within a queue when the durations of runs are unknown: least attained service, in levels.

Runs with less service go first. Service is counted in GPU-seconds and divided into a few coarse levels: up to 2 GPU-hours, up
to 8, 32, 128 and so on. A lower level goes first; within a level it is first come, first served. So a short run completes with
little effect on long ones, and long runs do not alternate all day.

A waiting run may preempt a running one only when it is on a lower level and the other has used its time slice (`LEAST_RUN`).
The evicted run therefore cannot take the places back before the other has risen above its level: runs do not thrash, and a
round of decisions always terminates.

There is no starvation: a run that has waited without interruption for long, relative to its service (`PATIENCE`), counts as
one level lower, and as one more for each further factor of `STEP`. It keeps that level for its next stint.

The constants are round and need no tuning: with half or twice as many GPU-seconds, with steps of 3 to 8, or with other time
slices, the average completion time of recorded queues changes by one or two percent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FIRST_LEVEL = 7200.0
"""Upper bound of level 0, in GPU-seconds."""
STEP = 4.0
"""Ratio of the upper bounds of successive levels."""
LEAST_RUN = 600.0
"""Minimum seconds that a run may keep its places: a few times the cost of an eviction and restart."""
LEAST_STAY = 1800.0
"""Minimum seconds before a run may be moved to other places for the sake of another run."""
PATIENCE = 2.0
"""Seconds of waiting, per GPU-second of the lower bound of its level, after which a run counts as one level lower."""
_SLACK = 0.01
"""Tolerance in GPU-seconds for the rounding of sums over many stints."""


@dataclass(frozen=True, slots=True)
class TimeSliceStanding:
    """One run as seen by the time-slice rule."""

    key: object
    """Breaks ties; keys must be mutually comparable."""
    gpus: float
    """The resources that it takes, in the same unit for all runs (GPUs, or cores where there are none)."""
    served: float
    """Total GPU-seconds received until now, over all stints."""
    submitted: float
    since: float | None
    """Start of its current stint; None when it waits."""
    waiting_since: float
    """When its last wait began: at submission or eviction. For a running run: the wait before this stint."""


def level(served: float, waited: float = 0.0) -> int:
    """Return the level of a run with this service in GPU-seconds and this uninterrupted wait in seconds; lower goes first."""
    number, bound = 0, FIRST_LEVEL
    while served >= bound - _SLACK:
        number, bound = number + 1, bound * STEP
    patience = PATIENCE * bound / STEP
    while number and waited >= patience - _SLACK:
        number, patience = number - 1, patience * STEP
    return number


def level_of(standing: TimeSliceStanding, now: float) -> int:
    """Return the current level of a run."""
    return level(standing.served, _waited(standing, now))


def order_key(standing: TimeSliceStanding, now: float) -> tuple[int, float, object]:
    """Return the sort key for the order of service within one queue and priority: by level, then age."""
    return (level_of(standing, now), standing.submitted, standing.key)


def may_displace(waiting: TimeSliceStanding, running: TimeSliceStanding, now: float, least_run: float = LEAST_RUN) -> bool:
    """Return whether the waiting run may preempt the running one now."""
    return had_turn(running, now, least_run) and level_of(waiting, now) < level_of(running, now)


def had_turn(running: TimeSliceStanding, now: float, least_run: float = LEAST_RUN) -> bool:
    """Return whether a run has used its time slice in the current stint."""
    return running.since is not None and now - running.since >= least_run - _SLACK


def may_move(running: TimeSliceStanding, now: float) -> bool:
    """Return whether a run may be restarted on other places to make room for another; it loses only the restart."""
    return running.since is not None and now - running.since >= LEAST_STAY - _SLACK


def leaving_key(running: TimeSliceStanding, now: float) -> tuple[float, float, object]:
    """Return the sort key for victims, the first to be evicted first: the highest level, then the latest start."""
    since = running.since if running.since is not None else now
    return (-level_of(running, now), -since, running.key)


def price(victims: Iterable[TimeSliceStanding], now: float) -> tuple[float, float]:
    """Return the cost of evicting these runs: higher for a lower minimum level, then by their GPUs."""
    leaving = list(victims)
    return (-min((level_of(victim, now) for victim in leaving), default=0), sum(victim.gpus for victim in leaving))


def next_look(standing: TimeSliceStanding, now: float, least_run: float = LEAST_RUN) -> float | None:
    """Return when the run's level changes or its time slice ends through time alone.

    The result is later than `now`; None when there is no such time.
    """
    times: list[float] = []
    bound, begins = FIRST_LEVEL, 0.0
    while standing.served >= bound - _SLACK:
        bound, begins = bound * STEP, bound
    if standing.since is None:
        patience = PATIENCE * begins
        while patience and standing.waiting_since + patience <= now + _SLACK:
            patience *= STEP
        if level(standing.served, now - standing.waiting_since):
            times.append(standing.waiting_since + patience)
    else:
        times.append(standing.since + least_run)
        if standing.gpus > 0:
            times.append(now + (bound - standing.served) / standing.gpus)
    later = [time for time in times if time > now]
    return min(later, default=None)


def _waited(standing: TimeSliceStanding, now: float) -> float:
    until = now if standing.since is None else standing.since
    return max(0.0, until - standing.waiting_since)
