"""Parse Kubernetes quantities: `500m`, `1Gi`, `1e3`. Pure."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

_WRITTEN = re.compile(r"(?P<number>[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))(?P<unit>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?")
_UNITS = {
    "": Fraction(1),
    **{unit: Fraction(1, 1000**power) for power, unit in enumerate(("m", "u", "n"), 1)},
    **{unit: Fraction(1000**power) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


@lru_cache(maxsize=4096)
def exact(text: str) -> Fraction:
    """Return the exact value of a quantity. Raises `ValueError` for text that the API server would refuse, too."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        message = f"{text!r} is not a quantity"
        raise ValueError(message)
    unit = match["unit"] or ""
    number = Fraction(match["number"])
    if unit in _UNITS:
        return number * _UNITS[unit]
    return number * Fraction(10) ** int(unit[1:])


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """Return a quantity in thousandths, rounded up."""
    return ceil(exact(text) * 1000)


@lru_cache(maxsize=4096)
def whole(text: str) -> int:
    """Return a quantity in whole units, rounded up."""
    return ceil(exact(text))
