"""Forecast when a waiting run will start, as a range with the probability that it holds.

The caller's own scheduler simulates the future several times, each time with other durations, drawn from the history of each
run. That gives a spread of waits. Future submissions cannot be drawn, so the spread is compared with actual starts:
`ForecastCalibration` learns from every start how far to shift and widen the spread, so that the stated ranges hold as often as
promised, whatever the scheduler and the workload are like.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SCENARIOS = 9
WANTED = 0.92
"""Target rate at which ranges hold. It is above `PROMISED` because learning lags behind change, by about six percent."""
PROMISED = 0.8
GRAIN = 60.0
"""Seconds of error that are ignored."""
_PACE = 0.2
"""Step size of the calibration, in logarithms."""
_PRIOR = 20
"""Weight of the promised rate in the confidence, as a number of starts."""

Part = Callable[[object], float]
"""Maps a run's key to its duration in this scenario, as a quantile (0 to 1)."""


@dataclass(frozen=True, slots=True)
class StartForecast:
    """Seconds until a run starts."""

    low: float
    median: float
    high: float
    confidence: float
    """Rate at which such ranges have held, 0 to 1."""
    spread: tuple[float, float, float]
    """The uncalibrated low, median and high of the scenarios."""


@dataclass(frozen=True, slots=True)
class ForecastCalibration:
    """Corrections learned from past forecasts; a plain value."""

    shift: float = 0.0
    """Logarithm of the ratio of actual to simulated waits."""
    stretch: float = math.log(2.0)
    """Logarithm of the factor by which the range must be widened."""
    seen: int = 0
    held: int = 0


def part_in(scenario: int) -> Part:
    """Return the draws of one scenario: deterministic by key, and independent of other keys and scenarios."""

    def part(key: object) -> float:
        digest = hashlib.blake2b(f"{scenario}:{key}".encode(), digest_size=4).digest()
        return (int.from_bytes(digest) + 0.5) / 2**32

    return part


def play(
    run: Callable[[Part], float | None], calibration: ForecastCalibration, scenarios: int = SCENARIOS
) -> StartForecast | None:
    """Run the scenarios and return the calibrated forecast; None when the run starts in at most half of them.

    `run` returns the seconds until the start in one scenario, or None when the run never starts in it.
    """
    waits = [wait for scenario in range(scenarios) if (wait := run(part_in(scenario))) is not None]
    return calibrated(waits, calibration) if 2 * len(waits) > scenarios else None


def calibrated(waits: Sequence[float], calibration: ForecastCalibration) -> StartForecast:
    """Return the forecast for these simulated waits, of which there must be at least one."""
    ordered = sorted(waits)
    tail = round(0.1 * (len(ordered) - 1))
    low, median, high = ordered[tail], ordered[len(ordered) // 2], ordered[-1 - tail]
    confidence = (calibration.held + _PRIOR * PROMISED) / (calibration.seen + _PRIOR)
    return StartForecast(
        _scaled(low, calibration.shift - calibration.stretch),
        _scaled(median, calibration.shift),
        _scaled(high, calibration.shift + calibration.stretch),
        round(confidence, 3),
        (low, median, high),
    )


def learn(calibration: ForecastCalibration, forecast: StartForecast, waited: float) -> ForecastCalibration:
    """Return the calibration after the forecast's run started after `waited` seconds, or still waits beyond the range."""
    low, median, high = forecast.spread
    error = _apart(waited, median)
    shift = calibration.shift + _PACE * 0.5 * ((error > calibration.shift) - (error < calibration.shift))
    missed = max(_apart(waited, high) - calibration.shift, calibration.shift - _apart(waited, low)) > calibration.stretch
    stretch = max(0.0, calibration.stretch + _PACE * (WANTED if missed else WANTED - 1))
    held = forecast.low - GRAIN <= waited <= forecast.high + GRAIN
    return ForecastCalibration(shift, stretch, calibration.seen + 1, calibration.held + held)


def _scaled(seconds: float, by: float) -> float:
    return max(0.0, (seconds + GRAIN) * math.exp(by) - GRAIN)


def _apart(waited: float, said: float) -> float:
    """Return the logarithm of the ratio of the actual to the forecast wait."""
    return math.log((waited + GRAIN) / (said + GRAIN))
