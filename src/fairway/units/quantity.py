"""Parses and formats quantities as users write them: `4Gi`, `500m`, `90s`."""

from __future__ import annotations

import math
import re
from functools import lru_cache

_NUMBER = re.compile(r"(?P<value>[0-9]{1,30}(\.[0-9]{1,30})?|\.[0-9]{1,30})(?P<unit>[A-Za-z]*)")

_TIME = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "": 1.0}
_MEMORY = {
    "": 1,
    "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_LARGEST, _LARGEST_MEMORY, _LONGEST = 1e9, float(2**60), 1000 * 366 * 86400.0
"""Upper bounds of requested amounts, so that their sums fit in 64 bits."""
_AGES = 1e12
"""Seconds from which on hours are not shown."""
_COUNT = {"": 1.0, "m": 0.001, "k": 1000.0}


@lru_cache(maxsize=1024)
def seconds(text: str) -> float:
    """Parse a duration: `90s` -> 90.0, `1h30m` -> 5400.0; a bare number means seconds."""
    parts = list(_NUMBER.finditer(text))
    whole = "".join(part.group() for part in parts)
    unclear = len(parts) > 1 and any(not part["unit"] for part in parts)
    if not parts or unclear or whole != text or any(part["unit"] not in _TIME for part in parts):
        message = "is not a duration; write for example 90s, 5m, 1h30m or 2d"
        raise ValueError(message)
    return _bounded(
        sum(float(part["value"]) * _TIME[part["unit"]] for part in parts), _LONGEST, "is longer than a thousand years; write less"
    )


@lru_cache(maxsize=1024)
def byte_count(text: str) -> int:
    """Parse an amount of memory: `2Gi` -> 2147483648; a bare number means bytes."""
    amount = _single(text, _MEMORY, "is not an amount of memory; write for example 512Mi, 2Gi or 1G")
    return int(_bounded(amount, _LARGEST_MEMORY, "is more than 1 EiB; write less"))


@lru_cache(maxsize=1024)
def number(text: str) -> float:
    """Parse a number: `500m` -> 0.5, `2` -> 2.0, `0.25` -> 0.25."""
    return _bounded(
        _single(text, _COUNT, "is not an amount; write for example 1, 0.5 or 500m"),
        _LARGEST,
        "is more than 1000000000; write less",
    )


@lru_cache(maxsize=1024)
def percent(text: str) -> float:
    """Parse a fraction: `5%` -> 0.05, `0.05` -> 0.05."""
    message = "is not a fraction from 0 to 1; write for example 5% or 0.05"
    part = _single(text[:-1], {"": 0.01}, message) if text.endswith("%") else _single(text, {"": 1.0}, message)
    if part > 1:
        raise ValueError(message)
    return part


def _bounded(value: float, most: float, message: str) -> float:
    if value > most:
        raise ValueError(message)
    return value


def _single(text: str, units: dict[str, float] | dict[str, int], message: str) -> float:
    match = _NUMBER.fullmatch(text)
    if not match or match["unit"] not in units:
        raise ValueError(message)
    return float(match["value"]) * units[match["unit"]]


def show_bytes(count: float) -> str:
    """Format bytes in the shortest readable form: `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count}"


def show_seconds(span: float) -> str:
    """Format a duration in the shortest readable form: `850ms`, `12s`, `3m20s`, `2h5m`, `4d2h`."""
    if not math.isfinite(span):
        return "an unknown time"
    if span < 0.9995:
        return f"{round(max(0.0, span) * 1000)}ms"
    if span < 10:
        return f"{span:.1f}".rstrip("0").rstrip(".") + "s"
    if span >= _AGES:
        return f"{span / 86_400:.3g}d"
    rest = round(span)
    if rest < 60:
        return f"{rest}s"
    for big, small, big_name, small_name in ((60, 1, "m", "s"), (3600, 60, "h", "m"), (86400, 3600, "d", "h")):
        if rest < big * (60 if big != 3600 else 24) or big == 86400:
            remainder = rest % big // small
            return f"{rest // big}{big_name}" + (f"{remainder}{small_name}" if remainder else "")
    return f"{rest}s"


def show_number(value: float) -> str:
    """Format a number without a useless fraction: `2`, `0.25`."""
    return f"{value:g}"
