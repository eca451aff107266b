"""Shapes of load: requests per second as a function of time."""

from __future__ import annotations

import math
from collections.abc import Callable

Traffic = Callable[[float], float]

MINUTE, HOUR = 60.0, 3600.0


def steady(rate: float) -> Traffic:
    """Return a constant load."""
    return lambda _: rate


def burst(rate: float, factor: float, begin: float, end: float) -> Traffic:
    """Return a load that is multiplied by `factor` for a while."""
    return lambda time: rate * factor if begin <= time < end else rate


def day(rate: float = 60.0) -> Traffic:
    """Return two hours of load.

    Slow waves, a burst of three times and one of five, ten minutes of thirty seconds on and off, and waves again.
    """

    def at(time: float) -> float:
        base = rate * (1.0 + 0.25 * math.sin(2.0 * math.pi * time / HOUR))
        if 25 * MINUTE <= time < 30 * MINUTE:
            return 3.0 * base
        if 55 * MINUTE <= time < 58 * MINUTE:
            return 5.0 * base
        if 80 * MINUTE <= time < 90 * MINUTE:
            return 2.0 * base if time % MINUTE < 30.0 else 0.25 * base
        return base

    return at
