"""What a run came to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairway.simulation.service.world import Moment, World


@dataclass(frozen=True, slots=True)
class ServiceOutcome:
    """One run in figures."""

    late: float
    """The part of the answers that took longer than the objective."""
    replica_hours: float
    changes: int
    """How often another number of replicas was wanted."""
    reversals: int
    """How often it went the other way than the time before."""
    most: int


def outcome(world: World, objective: float) -> ServiceOutcome:
    """The whole run."""
    moments = world.moments
    answers = sum(moment.answered for moment in moments)
    late = sum(int((moment.took > objective).sum()) for moment in moments)
    numbers = [moment.wanted for moment in moments]
    moves = [after - before for before, after in itertools.pairwise(numbers) if after != before]
    turns = sum((one > 0) != (other > 0) for one, other in itertools.pairwise(moves))
    return ServiceOutcome(
        late=late / answers if answers else 0.0,
        replica_hours=sum(moment.live for moment in moments) * world.tick / 3600.0,
        changes=len(moves),
        reversals=turns,
        most=max(numbers, default=0),
    )


def recovery(moments: Sequence[Moment], begin: float, end: float, objective: float, window: float = 5.0) -> float:
    """Seconds from `begin` until the 95th percentile of the last few seconds is within the objective and stays so to `end`."""
    last = begin
    times = [moment for moment in moments if begin <= moment.time < end]
    first = 0
    for index, moment in enumerate(times):
        while times[first].time <= moment.time - window:
            first += 1
        took = np.concatenate([one.took for one in times[first : index + 1]])
        waiting = not len(took)
        if waiting or float(np.quantile(took, 0.95)) > objective:
            last = moment.time
    return last - begin
