"""Two answers to the same request: do they have the same outputs?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairway.serving.replica.datatypes import Array
from fairway.serving.router.comparison.tensors import Output

_NUMBERS = frozenset({"INTEGER", "NUMBER"})
"""What JSON alone does not tell apart: 1.0 may be written as 1."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How the answer to a copy differs from the client's."""

    differs: bool = False
    relaid: bool = False
    """By the names, types or shapes of the outputs."""
    classified: bool = False
    """The answers name a class, or score several."""
    reclassified: bool = False
    """Another class."""
    non_finite: bool = False
    """NaN or infinity where the client's answer has a number; `differs` is about the other values."""
    restored: bool = False
    """A number where the client's answer has NaN or infinity."""
    largest: float = 0.0
    """The largest difference of a value, as a part of the largest value of its output in the client's answer."""

    def plus(self, other: Difference) -> Difference:
        """Both together."""
        return Difference(
            self.differs or other.differs,
            self.relaid or other.relaid,
            self.classified or other.classified,
            self.reclassified or other.reclassified,
            self.non_finite or other.non_finite,
            self.restored or other.restored,
            max(self.largest, other.largest),
        )


def compare(mine: Sequence[Output], copy: Sequence[Output], tolerance: float) -> Difference:
    """The difference between a client's answer and that to its copy; outputs that only the copy has are no difference."""
    beside = {output.name: output for output in copy}
    found = Difference()
    for output in mine:
        other = beside.get(output.name)
        if other is None or not _is_alike(output, other):
            found = found.plus(Difference(differs=True, relaid=True))
        else:
            found = found.plus(_values(output, other, tolerance))
    return found


def _is_alike(one: Output, other: Output) -> bool:
    same_type = one.datatype == other.datatype or {one.datatype, other.datatype} <= _NUMBERS
    return same_type and one.values.shape == other.values.shape


def _values(one: Output, other: Output, tolerance: float) -> Difference:
    if not one.is_float:
        differs = not bool(np.array_equal(one.values, other.values))
        return Difference(differs=differs, classified=one.values.size > 0, reclassified=differs)
    mine, copy = one.values.astype(np.float64), other.values.astype(np.float64)
    known = np.isfinite(mine)
    lost = bool((known & ~np.isfinite(copy)).any())
    restored = bool((~known & np.isfinite(copy)).any())
    both = known & np.isfinite(copy)
    scale = float(np.abs(mine[known]).max(initial=0.0)) or 1.0
    # Large numbers of both signs: their difference may be infinite, which is a difference.
    with np.errstate(over="ignore"):
        largest = float((np.abs(copy[both] - mine[both]) / scale).max(initial=0.0))
    classified, reclassified = _classes(mine, copy, tolerance * scale)
    if one.datatype == other.datatype == "INTEGER":
        # Labels in JSON: numbers without a distance.
        classified, reclassified = True, largest > 0.0
    return Difference(largest > tolerance, False, classified, reclassified, lost, restored, largest)


def _classes(mine: Array, copy: Array, margin: float) -> tuple[bool, bool]:
    """Whether rows score several classes, and whether one of them has another highest score by more than `margin`."""
    if mine.ndim != 2 or mine.shape[-1] < 2:
        return False, False
    sound = np.isfinite(mine).all(axis=1) & np.isfinite(copy).all(axis=1)
    rows, others = mine[sound], copy[sound]
    if not len(rows):
        return False, False
    first, second = rows.argmax(axis=1), others.argmax(axis=1)
    at = np.arange(len(rows))
    lead = rows[at, first] - rows[at, second]
    return True, bool((lead > margin).any())
