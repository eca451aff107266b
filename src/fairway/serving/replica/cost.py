"""How long a batch takes: seconds = a * rows + b, learnt from the batches that ran."""

from __future__ import annotations

import math

_MEMORY = 0.98
"""What is left of a batch's weight after the next one: about the last fifty count."""


class Cost:
    """A line through the latest batches, by weighted least squares. Neither `a` nor `b` is ever negative."""

    def __init__(self) -> None:
        self.per_row = 0.0
        self.per_batch = 0.0
        self._weight = self._rows = self._squares = self._seconds = self._products = 0.0

    def add(self, rows: int, seconds: float) -> None:
        """One more batch."""
        self._weight = self._weight * _MEMORY + 1.0
        self._rows = self._rows * _MEMORY + rows
        self._squares = self._squares * _MEMORY + rows * rows
        self._seconds = self._seconds * _MEMORY + seconds
        self._products = self._products * _MEMORY + rows * seconds
        spread = self._weight * self._squares - self._rows * self._rows
        slope = 0.0
        if spread > 1e-6 * self._weight * self._squares:
            slope = (self._weight * self._products - self._rows * self._seconds) / spread
        else:
            # All batches had the same size: nothing tells the two apart, so that the last known ratio stays.
            known = self.per_row * rows + self.per_batch
            slope = self.per_row * (self._seconds / self._weight / known) if known > 0 else 0.0
        highest = self._seconds / self._rows
        self.per_row = min(max(slope, 0.0), highest)
        self.per_batch = max((self._seconds - self.per_row * self._rows) / self._weight, 0.0)

    def seconds(self, rows: int) -> float:
        """How long one batch of so many rows would take."""
        return self.per_row * rows + self.per_batch

    def rows_within(self, seconds: float) -> int:
        """How many rows one batch may have to take no longer; 1 at least."""
        if self.per_row <= 0.0:
            return 1 if self.per_batch > seconds else 1 << 30
        return max(1, math.floor((seconds - self.per_batch) / self.per_row))
