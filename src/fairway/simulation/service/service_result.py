"""Results of a service simulation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairway.simulation.service.simulated_service import ServiceTick, SimulatedService


@dataclass(frozen=True, slots=True)
class ServiceResult:
    """The figures of one simulation."""

    late: float
    """Part of the answers that took longer than the objective."""
    replica_hours: float
    changes: int
    """How often the desired number of replicas changed."""
    reversals: int
    """How often it changed in the opposite direction to the previous change."""
    most: int


def outcome(world: SimulatedService, objective: float) -> ServiceResult:
    """Return the results of a whole simulation."""
    moments = world.moments
    answers = sum(moment.answered for moment in moments)
    late = sum(int((moment.took > objective).sum()) for moment in moments)
    numbers = [moment.wanted for moment in moments]
    moves = [after - before for before, after in itertools.pairwise(numbers) if after != before]
    turns = sum((earlier > 0) != (later > 0) for earlier, later in itertools.pairwise(moves))
    return ServiceResult(
        late=late / answers if answers else 0.0,
        replica_hours=sum(moment.live for moment in moments) * world.tick / 3600.0,
        changes=len(moves),
        reversals=turns,
        most=max(numbers, default=0),
    )


def recovery(moments: Sequence[ServiceTick], begin: float, end: float, objective: float, window: float = 5.0) -> float:
    """Return the seconds from `begin` until the latency objective is met for good.

    It is met when the 95th percentile of the last few seconds is within the objective, and stays so until `end`.
    """
    last = begin
    times = [moment for moment in moments if begin <= moment.time < end]
    first = 0
    for index, moment in enumerate(times):
        while times[first].time <= moment.time - window:
            first += 1
        durations = np.concatenate([recent.took for recent in times[first : index + 1]])
        waiting = not len(durations)
        if waiting or float(np.quantile(durations, 0.95)) > objective:
            last = moment.time
    return last - begin
