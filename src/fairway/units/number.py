"""Numbers from outside the program: validated once where they enter, so that all other code can store and compute with them.

A step or a count is a 64-bit integer, because that is what the store keeps. A time is finite and near the clock. The value of a
metric is any float: NaN and the infinities are legal, because a loss that became NaN must stay visible. `fairway.runtime.number`
has the same rules for code that runs inside tasks and may import nothing else.
"""

from __future__ import annotations

import math

INT64_LEAST, INT64_MOST = -(2**63), 2**63 - 1
EXACT = 2**53
"""Up to this value every integer is a float, and a float stands for one integer."""
AHEAD = 86_400.0
"""Seconds that a time may be ahead of the clock: clocks of machines differ."""
SHOWN = 60
"""Maximum number of characters of a value that a message quotes."""


def int64(value: object) -> int | None:
    """Return the value as a signed 64-bit integer; a float only if it is whole and exact; None for anything else."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= EXACT else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return int(value) if INT64_LEAST <= value <= INT64_MOST else None


def count(value: object) -> int | None:
    """Return a non-negative 64-bit integer; None for anything else."""
    number = int64(value)
    return number if number is not None and number >= 0 else None


def real(value: object) -> float | None:
    """Return the value as a float, including NaN and the infinities; None for what is no number or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def finite(value: object) -> float | None:
    """Return the value as a float that is neither NaN nor infinite; None for anything else."""
    number = real(value)
    return number if number is not None and math.isfinite(number) else None


def moment(value: object, now: float) -> float | None:
    """Return seconds since the epoch, at most a day ahead of the clock; None for anything else."""
    number = finite(value)
    return number if number is not None and 0.0 <= number <= now + AHEAD else None


def ratio(part: object, whole: object) -> float | None:
    """Return `part / whole` where both are finite, the whole is not zero and the result is finite; otherwise None."""
    above, below = finite(part), finite(whole)
    return finite(above / below) if above is not None and below else None


def ceiling(value: float, most: int) -> int:
    """Return the value rounded up, within 0 and `most`; 0 for NaN."""
    if math.isnan(value) or value <= 0.0:
        return 0
    return most if value >= most else math.ceil(value)


def shown(value: object) -> str:
    """Return a short text of the value for a message; works for every value. An integer of 5,000 digits cannot be written out."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * SHOWN:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value[: SHOWN + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
