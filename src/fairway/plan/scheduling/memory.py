"""All that the scheduler remembers, as one value that can be kept: with it and the state of things it decides the same again."""

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
    """Places kept for a run that waits, so that nobody behind it takes what it waits for."""

    seats: tuple[Seat, ...]
    at: float
    """When they are expected to be free."""
    made: float
    claims: tuple[str, ...] = ()
    """Runs that were asked to leave for it."""
    exact: bool = False
    """Whether it starts at these very places and nowhere else: they are part of a plan of moves."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What was said of the start of a run that waits."""

    said: Forecast
    at: float
    learnt: bool = False
    """Whether it is known to be wrong, and that has been learnt from, though the run waits still."""


@dataclass(slots=True)
class SchedulerMemory:
    """Plain values; runs are named `namespace/name`."""

    usage: Usage = field(default_factory=dict)
    ran: dict[str, tuple[float, float]] = field(default_factory=dict)
    """What a run that is not over has had in earlier turns: seconds, and GPU-seconds."""
    left: dict[str, float] = field(default_factory=dict)
    """When a run that waits again had to leave."""
    ends: dict[str, float] = field(default_factory=dict)
    """When a run that runs was expected to end, when it started."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    hopeless: dict[str, tuple[float, int]] = field(default_factory=dict)
    """When it was found for a run that waits that no places would be free even if everybody left; and how much there was."""
    futile: dict[str, float] = field(default_factory=dict)
    """Until when nobody is asked again to make room for a run that waits: the last time it was in vain."""
    history: History = field(default_factory=History)
    said: dict[str, Statement] = field(default_factory=dict)
    """What was said of the starts of runs that wait, the oldest first."""
    calibration: Calibration = field(default_factory=Calibration)
    """What became of such statements, and what that teaches."""
    sitting: dict[str, tuple[Running, Amounts]] = field(default_factory=dict)
    """Who was known to run, and what it held: whoever left meanwhile must be taken off the accounts."""
    started: list[tuple[Shape, int]] = field(default_factory=list)
    """How many tasks of each shape were started, in the order of first sight."""
    lessons: int = 0
    """How many tasks had been started when the mix was learnt last."""
    mix: Mix | None = None

    def encode(self) -> bytes:
        """As bytes."""
        return msgspec.json.encode(self)


def decode(kept: bytes) -> SchedulerMemory:
    """What was encoded; nothing gives an empty memory. What another version wrote and this cannot read is forgotten."""
    if not kept:
        return SchedulerMemory()
    try:
        return msgspec.json.decode(kept, type=SchedulerMemory)
    except msgspec.DecodeError:
        return SchedulerMemory()
