"""The scheduler's memory as one serializable value: with it and the current state, a new scheduler decides the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from fairway.plan.scheduling.accounts import Usage
from fairway.plan.scheduling.amounts import Amounts
from fairway.plan.scheduling.durations import History
from fairway.plan.scheduling.forecast import Calibration, Forecast
from fairway.plan.scheduling.placement.mix import Mix
from fairway.plan.scheduling.request import Running
from fairway.plan.scheduling.shape import Seat, Shape


@dataclass(frozen=True, slots=True)
class Reservation:
    """Places reserved for a waiting run, so that runs behind it do not take them."""

    seats: tuple[Seat, ...]
    at: float
    """When the places are expected to be free."""
    made: float
    claims: tuple[str, ...] = ()
    """Runs that were evicted for it."""
    exact: bool = False
    """Whether the run starts at exactly these places: they are part of a plan of moves."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A forecast that was given for the start of a waiting run."""

    said: Forecast
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
    reservations: dict[str, Reservation] = field(default_factory=dict)
    hopeless: dict[str, tuple[float, int]] = field(default_factory=dict)
    """When it was found that a waiting run would not fit even if all runs ended, and the total capacity at that time."""
    futile: dict[str, float] = field(default_factory=dict)
    """Until when no victims are searched for a waiting run, because the last search failed."""
    history: History = field(default_factory=History)
    said: dict[str, Statement] = field(default_factory=dict)
    """Forecasts given for the starts of waiting runs, the oldest first."""
    calibration: Calibration = field(default_factory=Calibration)
    """What was learned from the outcome of such forecasts."""
    sitting: dict[str, tuple[Running, Amounts]] = field(default_factory=dict)
    """Running gangs and what each holds, so that runs which ended in the meantime can be subtracted from the accounts."""
    started: list[tuple[Shape, int]] = field(default_factory=list)
    """Number of started tasks of each shape, in order of first appearance."""
    lessons: int = 0
    """Number of started tasks when the mix was last computed."""
    mix: Mix | None = None

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
