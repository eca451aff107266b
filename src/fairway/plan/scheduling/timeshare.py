"""How the runs of a queue share the machines when nobody knows how long each will take.

Who has had little goes before who has had much. What a run has had is counted in GPU-seconds and ranked in a few coarse
levels: up to 2 GPU-hours, up to 8, 32, 128 and so on. A lower level goes first; within a level it is first come, first
served. So a short run is done before the long ones notice, and long ones do not take turns with each other all day.

Places change hands only for a reason: a waiting run may take the places of a running one when it stands on a lower level
and the other has had its turn (`LEAST_RUN`). Hence, after that, the one that had to leave cannot take the places back
before the other has climbed above it: nobody plays ping-pong, and one round of decisions always ends.

Nobody waits for ever: a run that has waited in one stretch for long, measured by what it has had (`PATIENCE`), counts as
one level lower, and as one more for each `STEP` times as long. It keeps that for the turn it then gets.

The figures are round and need no tuning: with half or twice as many GPU-seconds, with steps of 3 to 8, or with other turns,
the average completion time of recorded queues changes by one or two percent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FIRST_LEVEL = 7200.0
"""GPU-seconds up to which a run is on level 0."""
STEP = 4.0
"""Each level reaches so many times as far as the one before."""
LEAST_RUN = 600.0
"""Seconds that a run may stay before it must make room: a few times what leaving and coming again cost."""
LEAST_STAY = 1800.0
"""Seconds that a run stays where it is before it may be moved for the sake of another that keeps it running."""
PATIENCE = 2.0
"""How many times the GPU-seconds at which its level begins a run waits, in seconds, before it counts as one level lower."""
_SLACK = 0.01
"""GPU-seconds by which a sum of many turns may miss its mark."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One run as the rule sees it."""

    key: object
    """Breaks ties; keys must be comparable with each other."""
    gpus: float
    """What it takes of the machines; anything that is counted alike for all (GPUs, or cores where there are none)."""
    served: float
    """GPU-seconds it has had so far, in all turns, until now."""
    submitted: float
    since: float | None
    """Since when it runs, this time; None when it waits."""
    waiting_since: float
    """When its last wait began: when it was submitted, or had to leave. For one that runs: the wait before this turn."""


def level(served: float, waited: float = 0.0) -> int:
    """The class of a run that has had so many GPU-seconds and has waited so many seconds in one stretch; smaller goes first."""
    found, bound = 0, FIRST_LEVEL
    while served >= bound - _SLACK:
        found, bound = found + 1, bound * STEP
    patience = PATIENCE * bound / STEP
    while found and waited >= patience - _SLACK:
        found, patience = found - 1, patience * STEP
    return found


def level_of(standing: Standing, now: float) -> int:
    """The class of a run now."""
    return level(standing.served, _waited(standing, now))


def order_key(standing: Standing, now: float) -> tuple[int, float, object]:
    """Sorts runs of one queue and priority, the first to be served first: the lower level, then the older."""
    return (level_of(standing, now), standing.submitted, standing.key)


def may_displace(waiting: Standing, running: Standing, now: float, least_run: float = LEAST_RUN) -> bool:
    """Whether the one may take the places of the other now."""
    return had_turn(running, now, least_run) and level_of(waiting, now) < level_of(running, now)


def had_turn(running: Standing, now: float, least_run: float = LEAST_RUN) -> bool:
    """Whether a run has run for long enough, this time, to make room."""
    return running.since is not None and now - running.since >= least_run - _SLACK


def may_move(running: Standing, now: float) -> bool:
    """Whether a run may be started anew elsewhere so that another finds room; it loses a restart and nothing else."""
    return running.since is not None and now - running.since >= LEAST_STAY - _SLACK


def leaving_key(running: Standing, now: float) -> tuple[float, float, object]:
    """Sorts runs that could make room, the first to leave first: the highest level, then the latest start."""
    since = running.since if running.since is not None else now
    return (-level_of(running, now), -since, running.key)


def price(victims: Iterable[Standing], now: float) -> tuple[float, float]:
    """What it costs that these leave, to compare ways to make room: the lower the level of any, the dearer; then their GPUs."""
    leaving = list(victims)
    return (-min((level_of(victim, now) for victim in leaving), default=0), sum(victim.gpus for victim in leaving))


def next_look(standing: Standing, now: float, least_run: float = LEAST_RUN) -> float | None:
    """When the rule may see the run differently though nothing happens: its level changes, or its turn has lasted long enough.

    Later than `now`; None when that never comes.
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


def _waited(standing: Standing, now: float) -> float:
    until = now if standing.since is None else standing.since
    return max(0.0, until - standing.waiting_since)
