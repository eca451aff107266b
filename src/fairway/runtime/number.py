"""Validation of numbers from programs: the rules of `fairway.units.number`, for code that is copied into tasks.

Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import math
import re
import time
from typing import Callable, Optional

INT64_LEAST, INT64_MOST = -(2**63), 2**63 - 1
EXACT = 2**53
"""Up to this limit every integer has an exact float."""
AHEAD = 86_400.0
"""Seconds that a time may be in the future, because the clocks of machines differ."""
SHOWN = 60
"""Maximum number of characters of a value in a message."""
NAME_LIMIT = 250
"""Maximum number of characters of a metric's name."""
# Python accepts half of a surrogate pair as a character, but it cannot be stored as UTF-8.
_NAME = re.compile(rf"[^\x00-\x1f\x7f\ud800-\udfff]{{1,{NAME_LIMIT}}}")

Refuse = Callable[[str, str], None]
"""Called for each rejected value, with its kind and a sentence with the value, the reason and the fix."""
Point = tuple[float, Optional[int], dict[str, float]]
"""Time, step and metrics."""


def ignore(kind: str, reason: str) -> None:
    """Ignore a rejected value."""


def int64(value: object) -> int | None:
    """Return the value as a signed 64-bit integer, or None. A float is accepted only if it is whole and exact."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= EXACT else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return int(value) if INT64_LEAST <= value <= INT64_MOST else None


def count(value: object) -> int | None:
    """Return the value as a non-negative `int64`, or None."""
    integer = int64(value)
    return integer if integer is not None and integer >= 0 else None


def real(value: object) -> float | None:
    """Return the value as a float, including NaN and the infinities; None if it is not a number or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def finite(value: object) -> float | None:
    """Return the value as a finite float, or None."""
    value_as_float = real(value)
    return value_as_float if value_as_float is not None and math.isfinite(value_as_float) else None


def moment(value: object, now: float | None = None) -> float | None:
    """Return the value as seconds since the epoch, at most a day in the future; None for anything else."""
    seconds = finite(value)
    latest = (time.time() if now is None else now) + AHEAD
    return seconds if seconds is not None and 0.0 <= seconds <= latest else None


def shown(value: object) -> str:
    """Return the value for a message: short, and possible for every value. Python cannot print an integer of 5,000 digits."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * SHOWN:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value[: SHOWN + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def point(when: object, step: object, values: dict[str, object], refuse: Refuse) -> Point | None:
    """Return a report in the form in which it is stored; None if its step, its time or all of its metrics were rejected.

    A single invalid metric is left out, and the rest of the report is kept.
    """
    seconds = moment(when)
    if seconds is None:
        refuse("time", f"time {shown(when)} is out of range; it must be in seconds since 1970, and at most a day in the future")
        return None
    number = int64(step)
    if number is None and step is not None:
        refuse("step", _step_refused(step))
        return None
    metrics = dict(_metrics(values, refuse))
    return (seconds, number, metrics) if metrics or not values else None


def _step_refused(step: object) -> str:
    if isinstance(step, int) and not isinstance(step, bool):
        return f"step {shown(step)} is out of range; a step is a whole number from -2**63 to 2**63 - 1"
    return f"step {shown(step)} is not a whole number" + (
        "" if not isinstance(step, float) else " that can be represented exactly"
    )


def _metrics(values: dict[str, object], refuse: Refuse) -> list[tuple[str, float]]:
    accepted = []
    for name, value in values.items():
        number = real(value)
        if not _NAME.fullmatch(name):
            refuse("name", f"metric {shown(name)} is left out; a name has 1 to {NAME_LIMIT} printable characters")
        elif number is None:
            refuse("value", f"metric {shown(name)} is {shown(value)}, which is not a number")
        else:
            accepted.append((name, number))
    return accepted
