"""Curves, bars and charts as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_BARS = "▁▂▃▄▅▆▇█"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille cell: four rows of two dots."""


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Return the values as a curve in one line. Values that are not finite appear as gaps."""
    means = resample(values, width)
    finite = [value for value in means if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    if low == high:
        return "".join(_BARS[len(_BARS) // 2] if math.isfinite(value) else " " for value in means)
    top = len(_BARS) - 1
    return "".join(_BARS[round(_part(value, low, high) * top)] if math.isfinite(value) else " " for value in means)


def bar(part: float, width: int = 20) -> str:
    """Return a bar for a fraction: `██████░░░░`."""
    filled = round(max(0.0, min(1.0, part)) * width)
    return "█" * filled + "░" * (width - filled)


def plot(points: Sequence[tuple[float, float]], width: int = 60, height: int = 6) -> list[str]:
    """Return a small chart of (x, y) in braille dots, highest value at the top; no lines if there is no curve to draw."""
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len({x for x, _ in finite}) < 2:
        return []
    columns, rows = width * 2, height * 4
    left, right = min(x for x, _ in finite), max(x for x, _ in finite)
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    cells = [[0] * width for _ in range(height)]
    before: tuple[int, int] | None = None
    for x, y in finite:
        column = round(_part(x, left, right) * (columns - 1))
        row = round((1.0 - _part(y, low, high)) * (rows - 1)) if high > low else rows // 2
        for dot_column, dot_row in _line(before, (column, row)):
            cells[dot_row // 4][dot_column // 2] |= _DOTS[dot_row % 4][dot_column % 2]
        before = (column, row)
    return ["".join(chr(0x2800 + cell) for cell in line).rstrip("\u2800") for line in cells]


def resample(values: Sequence[float], width: int) -> list[float]:
    """Reduce the values to at most `width`: each is the mean of an equal share."""
    if len(values) <= width:
        return list(values)
    edges = [index * len(values) // width for index in range(width + 1)]
    return [_mean(values[begin:end]) for begin, end in pairwise(edges)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(value / len(finite) for value in finite) if finite else math.nan


def _part(value: float, low: float, high: float) -> float:
    """Return the position between low and high, 0 to 1. Halved first: the difference of two floats may overflow."""
    return max(0.0, min(1.0, (value / 2 - low / 2) / (high / 2 - low / 2))) if high / 2 > low / 2 else 0.0


def _line(begin: tuple[int, int] | None, end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the dots between two dots, so that a curve has no holes."""
    if begin is None:
        return [end]
    steps = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
    return [
        (begin[0] + round((end[0] - begin[0]) * part / steps), begin[1] + round((end[1] - begin[1]) * part / steps))
        for part in range(steps + 1)
    ]
