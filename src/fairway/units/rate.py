"""Rates as text: `100/s`, `60/m`, `1000/h`, or `100`, which is per second."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(?:/([smhd]))?")
_LARGEST = 1e6


def per_second(text: str) -> float:
    """Parse a rate and return it in events per second. Raises `ValueError` when the text is no rate."""
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _SECONDS[match[2] or "s"] if match else 0.0
    if not 0 < rate <= _LARGEST:
        message = "is not a rate: write for example 100/s, 60/m or 1000/h"
        raise ValueError(message)
    return rate


def show(rate: float) -> str:
    """Format the rate in the largest unit in which it is a whole number of at least one; empty for a zero rate."""
    if not rate:
        return ""
    for unit, seconds in _SECONDS.items():
        if rate * seconds >= 1 and abs(rate * seconds - round(rate * seconds)) < 1e-6:
            return f"{round(rate * seconds)}/{unit}"
    return f"{rate:.3g}/s"
