"""Axes: the position of a value, the values with ticks, and their labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

TICKS = 7
"""Approximate number of ticks on an axis."""
_MOMENTS = (
    (1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (6 * 3600.0, "6 h"),
    (86400.0, "1 day"), (7 * 86400.0, "1 week"), (30 * 86400.0, "1 month"), (90 * 86400.0, "3 months"),
    (365 * 86400.0, "1 year"), (3650 * 86400.0, "10 years"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """An axis from `low` to `high`; `part` is the position of a value along it, from 0 to 1."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def part(self, value: float) -> float:
        """Return the position of a value; a value outside is at the nearer end."""
        inside = min(self.high, max(self.low, value))
        if self.logarithmic:
            return math.log(inside / self.low) / math.log(self.high / self.low)
        return (inside - self.low) / (self.high - self.low)


def linear(low: float, high: float, unit: str = "", *, exact: bool = False) -> ChartAxis:
    """Return an axis with ticks at round numbers. It begins and ends at ticks too, unless its ends must be exact."""
    if not high > low:
        low, high = low - 1.0, high + 1.0
    step = _round_step((high - low) / TICKS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = tuple((number * step, f"{number * step:,.{digits}f}{unit}") for number in range(first, last + 1))
    if exact:
        return ChartAxis(low, high, tuple(tick for tick in ticks if low <= tick[0] <= high))
    return ChartAxis(first * step, last * step, ticks)


def moments(shortest: float, longest: float) -> ChartAxis:
    """Return a logarithmic axis of durations in seconds, starting at one second or more."""
    after = next((index for index, (seconds, _) in enumerate(_MOMENTS) if seconds > shortest), len(_MOMENTS) - 1)
    first = min(max(0, after - 1), len(_MOMENTS) - 2)
    last = next((index for index, (seconds, _) in enumerate(_MOMENTS) if seconds >= longest), len(_MOMENTS) - 1)
    ticks = _MOMENTS[first : max(first + 1, last) + 1]
    return ChartAxis(ticks[0][0], ticks[-1][0], ticks, logarithmic=True)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * 0.999)
