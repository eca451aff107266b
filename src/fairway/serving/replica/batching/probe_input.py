"""Generates test inputs from a signature: rows that differ, with several kinds of values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairway.serving.replica.model.datatype import DTYPES, Array, of_texts
from fairway.state.model import ModelSignature, TensorSpec

LENGTHS = (8, 32, 1, 64, 224)
"""Lengths to try in turn for free dimensions other than the first."""
_WORDS = ("a", "the ship", "Fairway", "x1", "no", "yes", "to the sea", "é")
_NUMBERS = ("0", "1", "2", "3", "4.5", "6", "7", "8")


@dataclass(frozen=True, slots=True)
class ProbeValueKind:
    """One kind of test values."""

    floats: Callable[[Array], Array]
    """Maps uniform numbers in [0, 1) to floats."""
    integers: int
    """Exclusive upper bound of integers, which start at 0 and stay within their type."""
    texts: tuple[str, ...]
    grows: bool = False
    """Whether floats of later rows are larger, so that a statistic over a batch changes with its members."""


KINDS = (
    ProbeValueKind(lambda uniform: 3.4 * uniform - 1.7, 2, _WORDS, grows=True),
    ProbeValueKind(lambda uniform: uniform, 10, _NUMBERS),
    ProbeValueKind(lambda uniform: np.floor(10.0 * uniform), 256, _WORDS),
    ProbeValueKind(lambda uniform: 200.0 * uniform - 100.0, 100, _WORDS),
    ProbeValueKind(lambda uniform: 10.0 * uniform, 5, _NUMBERS),
    ProbeValueKind(lambda uniform: 0.01 * uniform, 3, _WORDS),
)
"""A model may reject some kinds (an index out of range), or give the same output for all rows of a kind. Small integers come
first: an embedding rejects large ones, and each rejection is an error in the log."""


class ProbeInputs:
    """Generates rows for one signature. `length` is used for every free dimension except the first."""

    def __init__(self, signature: ModelSignature, uniform: SplitMixGenerator) -> None:
        self._specs = signature.inputs
        self._uniform = uniform
        self.length = LENGTHS[0]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths to try."""
        free = any(length < 0 for spec in self._specs for length in spec.shape[1:])
        return LENGTHS if free else LENGTHS[:1]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return sum(DTYPES[spec.datatype].itemsize * math.prod(self._shape(spec)) for spec in self._specs)

    def zeros(self) -> list[Array]:
        """Return a row of zeros and empty texts."""
        return [self._zeros(spec) for spec in self._specs]

    def row(self, kind: ProbeValueKind, part: float) -> list[Array]:
        """Return a row with new values on every call. `part`: scale of the floats, for a kind that grows."""
        return [self._values(spec, kind, part) for spec in self._specs]

    def _zeros(self, spec: TensorSpec) -> Array:
        shape = self._shape(spec)
        if spec.datatype == "BYTES":
            return of_texts([b""] * math.prod(shape)).reshape(shape)
        return np.zeros(shape, DTYPES[spec.datatype])

    def _values(self, spec: TensorSpec, kind: ProbeValueKind, part: float) -> Array:
        shape, dtype = self._shape(spec), DTYPES[spec.datatype]
        uniform = self._uniform.take(math.prod(shape))
        if spec.datatype == "BYTES":
            texts = [kind.texts[int(number * len(kind.texts))] for number in uniform.tolist()]
            return of_texts([text.encode() for text in texts]).reshape(shape)
        if dtype.kind == "f":
            floats: Array = kind.floats(uniform) * (part if kind.grows else 1.0)
            return floats.astype(dtype).reshape(shape)
        bound = 2 if dtype.kind == "b" else min(kind.integers, int(np.iinfo(dtype).max))
        integers: Array = np.floor(uniform * bound).astype(dtype).reshape(shape)
        return integers

    def _shape(self, spec: TensorSpec) -> tuple[int, ...]:
        return (1, *(self.length if length < 0 else length for length in spec.shape[1:]))


class SplitMixGenerator:
    """Seeded uniform numbers in [0, 1): SplitMix64 on arrays. Importing `numpy.random` would take longer than most proofs."""

    def __init__(self, seed: int) -> None:
        self._at = seed << 32

    def take(self, count: int) -> Array:
        """Return the next `count` numbers."""
        state = np.arange(self._at + 1, self._at + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
        self._at += count
        numbers: Array = (state >> np.uint64(11)).astype(np.float64) / float(1 << 53)
        return numbers
