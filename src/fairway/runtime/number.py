"""Numbers that a program wrote: the rules of `fairway.units.number`, for code that goes into tasks.

Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import math
import re
import time
from typing import Callable, Optional

INT64_LEAST, INT64_MOST = -(2**63), 2**63 - 1
EXACT = 2**53
"""Up to here every integer is a float, and a float names one integer."""
AHEAD = 86_400.0
"""Seconds that a time may be ahead of the clock: clocks of machines differ."""
SHOWN = 60
"""Characters of a value that a message shows."""
NAME_LIMIT = 250
"""Characters of a metric's name."""
# Half of a surrogate pair is a character to Python and cannot be stored as UTF-8.
_NAME = re.compile(rf"[^\x00-\x1f\x7f\ud800-\udfff]{{1,{NAME_LIMIT}}}")

Refuse = Callable[[str, str], None]
"""Takes what was refused: its kind, and a sentence with the value, the reason and the fix."""
Point = tuple[float, Optional[int], dict[str, float]]
"""Time, step and metrics."""


def ignore(kind: str, reason: str) -> None:
    """Take no notice of what was refused."""


def int64(value: object) -> int | None:
    """The integer, where it fits into 64 bits with its sign; a float only if it is whole and exact; None for anything else."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= EXACT else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return int(value) if INT64_LEAST <= value <= INT64_MOST else None


def count(value: object) -> int | None:
    """`int64` that is not negative."""
    found = int64(value)
    return found if found is not None and found >= 0 else None


def real(value: object) -> float | None:
    """The value as a float, NaN and the infinities included; None for what is no number or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def finite(value: object) -> float | None:
    """`real` that is neither NaN nor infinite."""
    found = real(value)
    return found if found is not None and math.isfinite(found) else None


def moment(value: object, now: float | None = None) -> float | None:
    """Seconds since the epoch, at most a day ahead of the clock; None for anything else."""
    found = finite(value)
    latest = (time.time() if now is None else now) + AHEAD
    return found if found is not None and 0.0 <= found <= latest else None


def shown(value: object) -> str:
    """The value for a message: short, and possible for every value. An integer of 5,000 digits cannot be written out."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * SHOWN:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value[: SHOWN + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def point(when: object, step: object, values: dict[str, object], refuse: Refuse) -> Point | None:
    """One report as it can be stored; None where its step, its time or all of its metrics were refused.

    A single bad metric is left out, and the rest of the report counts.
    """
    known = moment(when)
    if known is None:
        refuse("time", f"time {shown(when)} is out of range; it is in seconds since 1970, and not more than a day ahead")
        return None
    number = int64(step)
    if number is None and step is not None:
        refuse("step", _step_refused(step))
        return None
    metrics = dict(_metrics(values, refuse))
    return (known, number, metrics) if metrics or not values else None


def _step_refused(step: object) -> str:
    if isinstance(step, int) and not isinstance(step, bool):
        return f"step {shown(step)} is out of range; a step is a whole number from -2**63 to 2**63 - 1"
    return f"step {shown(step)} is no whole number" + ("" if not isinstance(step, float) else " that is exact")


def _metrics(values: dict[str, object], refuse: Refuse) -> list[tuple[str, float]]:
    found = []
    for name, value in values.items():
        number = real(value)
        if not _NAME.fullmatch(name):
            refuse("name", f"metric {shown(name)} is left out; a name has 1 to {NAME_LIMIT} printable characters")
        elif number is None:
            refuse("value", f"metric {shown(name)} is {shown(value)}, which is no number")
        else:
            found.append((name, number))
    return found
