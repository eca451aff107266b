"""Numbers from outside, checked once at the boundary. Pure."""

from __future__ import annotations

import math

_LEAST, _MOST = -(2**63), 2**63 - 1
_EXACT = 2**53
"""Up to here a float is exactly one whole number."""


def int64(value: object) -> int | None:
    """The value as a signed 64-bit integer; None when it is none.

    A float is converted when it is integral and at most 2**53. A bool is no number.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value) if _LEAST <= value <= _MOST else None
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return None


def finite(value: object) -> float | None:
    """The value as a finite float; None when it is none. A bool is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
