"""The scheduler's memory as one serializable value: with it and the current state, a new scheduler decides the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from fairway.plan.scheduling.forecast.duration_estimate import DurationHistory
from fairway.plan.scheduling.forecast.start_forecast import ForecastCalibration, StartForecast
from fairway.plan.scheduling.gang import TaskSeat, TaskShape
from fairway.plan.scheduling.gang_request import RunningGang
from fairway.plan.scheduling.queueing.usage_account import Usage
from fairway.plan.scheduling.resource_amount import Amounts
from fairway.plan.scheduling.workload_mix import WorkloadMix


@dataclass(frozen=True, slots=True)
class SeatReservation:
    """Places reserved for a waiting run, so that runs behind it do not take them."""

    seats: tuple[TaskSeat, ...]
    at: float
    """When the places are expected to be free."""
    made: float
    claims: tuple[str, ...] = ()
    """Runs that were evicted for it."""
    exact: bool = False
    """Whether the run starts at exactly these places: they are part of a plan of moves."""


@dataclass(frozen=True, slots=True)
class ForecastRecord:
    """A forecast that was given for the start of a waiting run."""

    said: StartForecast
    at: float
    learnt: bool = False
    """Whether the calibration has already learned that it was wrong, although the run still waits."""


@dataclass(slots=True)
class SchedulerMemory:
    """Plain values; keys are run names, `namespace/name`."""

    usage: Usage = field(default_factory=dict)
    ran: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Service that an unfinished run received in earlier stints: seconds and GPU-seconds."""
    left: dict[str, float] = field(default_factory=dict)
    """When a requeued run was last stopped."""
    ends: dict[str, float] = field(default_factory=dict)
    """The expected end of a running run, computed at its start."""
    reservations: dict[str, SeatReservation] = field(default_factory=dict)
    hopeless: dict[str, tuple[float, int]] = field(default_factory=dict)
    """When it was found that a waiting run would not fit even if all runs ended, and the total capacity at that time."""
    futile: dict[str, float] = field(default_factory=dict)
    """Until when no victims are searched for a waiting run, because the last search failed."""
    history: DurationHistory = field(default_factory=DurationHistory)
    said: dict[str, ForecastRecord] = field(default_factory=dict)
    """Forecasts given for the starts of waiting runs, the oldest first."""
    calibration: ForecastCalibration = field(default_factory=ForecastCalibration)
    """What was learned from the outcome of such forecasts."""
    sitting: dict[str, tuple[RunningGang, Amounts]] = field(default_factory=dict)
    """Running gangs and what each holds, so that runs which ended in the meantime can be subtracted from the accounts."""
    started: list[tuple[TaskShape, int]] = field(default_factory=list)
    """Number of started tasks of each shape, in order of first appearance."""
    lessons: int = 0
    """Number of started tasks when the mix was last computed."""
    mix: WorkloadMix | None = None

    def encode(self) -> bytes:
        """Return the memory as bytes."""
        return msgspec.json.encode(self)


def decode(kept: bytes) -> SchedulerMemory:
    """Decode a memory; empty bytes give an empty one, and so do bytes of another version that cannot be read."""
    if not kept:
        return SchedulerMemory()
    try:
        return msgspec.json.decode(kept, type=SchedulerMemory)
    except msgspec.DecodeError:
        return SchedulerMemory()
