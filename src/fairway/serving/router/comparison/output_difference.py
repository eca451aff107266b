"""Compares the outputs of two responses to the same request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairway.serving.replica.model.datatype import Array
from fairway.serving.router.comparison.response_output import InferenceOutput

_NUMBERS = frozenset({"INTEGER", "NUMBER"})
"""Types that JSON alone does not distinguish: 1.0 may be written as 1."""


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How the response to a copy differs from the client's."""

    differs: bool = False
    relaid: bool = False
    """Whether names, types or shapes of the outputs differ."""
    classified: bool = False
    """Whether the responses name a class, or score several."""
    reclassified: bool = False
    """Whether the class differs."""
    non_finite: bool = False
    """NaN or infinity where the client's response has a number; `differs` refers to the other values."""
    restored: bool = False
    """A number where the client's response has NaN or infinity."""
    largest: float = 0.0
    """The largest difference of a value, relative to the largest value of its output in the client's response."""

    def plus(self, other: OutputDifference) -> OutputDifference:
        """Return the combination of both."""
        return OutputDifference(
            self.differs or other.differs,
            self.relaid or other.relaid,
            self.classified or other.classified,
            self.reclassified or other.reclassified,
            self.non_finite or other.non_finite,
            self.restored or other.restored,
            max(self.largest, other.largest),
        )


def compare(mine: Sequence[InferenceOutput], copy: Sequence[InferenceOutput], tolerance: float) -> OutputDifference:
    """Return how the response to a copy differs from the client's; outputs that only the copy has are ignored."""
    copies = {output.name: output for output in copy}
    difference = OutputDifference()
    for output in mine:
        other = copies.get(output.name)
        if other is None or not _is_alike(output, other):
            difference = difference.plus(OutputDifference(differs=True, relaid=True))
        else:
            difference = difference.plus(_values(output, other, tolerance))
    return difference


def _is_alike(one: InferenceOutput, other: InferenceOutput) -> bool:
    same_type = one.datatype == other.datatype or {one.datatype, other.datatype} <= _NUMBERS
    return same_type and one.values.shape == other.values.shape


def _values(one: InferenceOutput, other: InferenceOutput, tolerance: float) -> OutputDifference:
    if not one.is_float:
        differs = not bool(np.array_equal(one.values, other.values))
        return OutputDifference(differs=differs, classified=one.values.size > 0, reclassified=differs)
    original, copy = one.values.astype(np.float64), other.values.astype(np.float64)
    finite = np.isfinite(original)
    lost = bool((finite & ~np.isfinite(copy)).any())
    restored = bool((~finite & np.isfinite(copy)).any())
    both = finite & np.isfinite(copy)
    scale = float(np.abs(original[finite]).max(initial=0.0)) or 1.0
    # For large numbers of both signs the difference may overflow to infinity, which counts as a difference.
    with np.errstate(over="ignore"):
        largest = float((np.abs(copy[both] - original[both]) / scale).max(initial=0.0))
    classified, reclassified = _classes(original, copy, tolerance * scale)
    if one.datatype == other.datatype == "INTEGER":
        # Labels in JSON: numbers without a distance.
        classified, reclassified = True, largest > 0.0
    return OutputDifference(largest > tolerance, False, classified, reclassified, lost, restored, largest)


def _classes(mine: Array, copy: Array, margin: float) -> tuple[bool, bool]:
    """Return whether rows score several classes, and whether any row's best class differs by more than `margin`."""
    if mine.ndim != 2 or mine.shape[-1] < 2:
        return False, False
    sound = np.isfinite(mine).all(axis=1) & np.isfinite(copy).all(axis=1)
    rows, others = mine[sound], copy[sound]
    if not len(rows):
        return False, False
    first, second = rows.argmax(axis=1), others.argmax(axis=1)
    indexes = np.arange(len(rows))
    lead = rows[indexes, first] - rows[indexes, second]
    return True, bool((lead > margin).any())
