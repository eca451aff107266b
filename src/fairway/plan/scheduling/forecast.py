"""When a waiting run will start, as a range with the chance that it holds.

The future is played through several times by the caller's own scheduler, each time with other durations, drawn from what
is known of each run. That gives a spread of waits. Nobody can draw what has not been submitted yet, so the spread is held
against what happened: `Calibration` learns from every start how far to shift and how far to widen it, so that the stated
ranges hold as often as they say, whatever the scheduler and the work are like.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SCENARIOS = 9
WANTED = 0.92
"""How often ranges are meant to hold; more than is promised, since learning lags behind change: by about six in a hundred."""
PROMISED = 0.8
GRAIN = 60.0
"""Seconds that make no difference to anybody who waits."""
_PACE = 0.2
"""How fast a calibration moves, in logarithms."""
_PRIOR = 20
"""How many starts the promise counts for, before the first is seen."""

Part = Callable[[object], float]
"""By the key of a run: how long it takes in this scenario, as the part (0 to 1) of all cases that are shorter."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds from now until a run starts."""

    low: float
    median: float
    high: float
    confidence: float
    """How often such ranges have held, 0 to 1."""
    spread: tuple[float, float, float]
    """What the scenarios said before it was calibrated: low, median, high."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What past forecasts teach; a plain value."""

    shift: float = 0.0
    """Logarithm of how much longer waits last than the scenarios say."""
    stretch: float = math.log(2.0)
    """Logarithm of how much wider the range must be than the scenarios say."""
    seen: int = 0
    held: int = 0


def part_in(scenario: int) -> Part:
    """The draws of one scenario: the same for the same key, and unlike those of other keys and scenarios."""

    def part(key: object) -> float:
        digest = hashlib.blake2b(f"{scenario}:{key}".encode(), digest_size=4).digest()
        return (int.from_bytes(digest) + 0.5) / 2**32

    return part


def play(run: Callable[[Part], float | None], calibration: Calibration, scenarios: int = SCENARIOS) -> Forecast | None:
    """Play the future through. `run` gives the seconds until the start, or None when it never starts in that scenario.

    None when it starts in less than half of them.
    """
    waits = [wait for scenario in range(scenarios) if (wait := run(part_in(scenario))) is not None]
    return calibrated(waits, calibration) if 2 * len(waits) > scenarios else None


def calibrated(waits: Sequence[float], calibration: Calibration) -> Forecast:
    """The range in which the start is to be expected, when the scenarios gave these waits. There must be one at least."""
    ordered = sorted(waits)
    edge = round(0.1 * (len(ordered) - 1))
    low, median, high = ordered[edge], ordered[len(ordered) // 2], ordered[-1 - edge]
    confidence = (calibration.held + _PRIOR * PROMISED) / (calibration.seen + _PRIOR)
    return Forecast(
        _scaled(low, calibration.shift - calibration.stretch),
        _scaled(median, calibration.shift),
        _scaled(high, calibration.shift + calibration.stretch),
        round(confidence, 3),
        (low, median, high),
    )


def learn(calibration: Calibration, forecast: Forecast, waited: float) -> Calibration:
    """The run that this was said of has started after so many seconds, or waits still though the range is over."""
    low, median, high = forecast.spread
    off = _apart(waited, median)
    shift = calibration.shift + _PACE * 0.5 * ((off > calibration.shift) - (off < calibration.shift))
    missed = max(_apart(waited, high) - calibration.shift, calibration.shift - _apart(waited, low)) > calibration.stretch
    stretch = max(0.0, calibration.stretch + _PACE * (WANTED if missed else WANTED - 1))
    held = forecast.low - GRAIN <= waited <= forecast.high + GRAIN
    return Calibration(shift, stretch, calibration.seen + 1, calibration.held + held)


def _scaled(seconds: float, by: float) -> float:
    return max(0.0, (seconds + GRAIN) * math.exp(by) - GRAIN)


def _apart(waited: float, said: float) -> float:
    """How many times as long it lasted, as a logarithm."""
    return math.log((waited + GRAIN) / (said + GRAIN))
