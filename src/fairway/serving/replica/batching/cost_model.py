"""Cost model of a batch: seconds = a * rows + b, fitted to the batches that ran."""

from __future__ import annotations

import math

_MEMORY = 0.98
"""Factor by which a batch's weight decays with each later batch: about the last fifty count."""

_RIDGE = 0.01
"""Variance of batch sizes, relative to their mean square, at which the latest batches count as much as the previous estimate."""


class BatchCostModel:
    """A line fitted to the latest batches by weighted least squares. Neither `a` nor `b` is ever negative."""

    def __init__(self) -> None:
        self.per_row = 0.0
        self.per_batch = 0.0
        self._weight = self._rows = self._squares = self._seconds = self._products = 0.0

    def add(self, rows: int, seconds: float) -> None:
        """Add a measured batch."""
        self._weight = self._weight * _MEMORY + 1.0
        self._rows = self._rows * _MEMORY + rows
        self._squares = self._squares * _MEMORY + rows * rows
        self._seconds = self._seconds * _MEMORY + seconds
        self._products = self._products * _MEMORY + rows * seconds
        spread = self._weight * self._squares - self._rows * self._rows
        # If sizes hardly vary, the slope is mostly noise, so the previous ratio is kept. Under load nearly all batches are full:
        # without this, one slow batch made a fast model look slow for a single row.
        predicted = self.seconds(self._rows / self._weight)
        previous = self.per_row * (self._seconds / self._weight / predicted) if predicted > 0 else 0.0
        force = _RIDGE * self._weight * self._squares
        slope = (self._weight * self._products - self._rows * self._seconds + force * previous) / (spread + force)
        highest = self._seconds / self._rows
        self.per_row = min(max(slope, 0.0), highest)
        self.per_batch = max((self._seconds - self.per_row * self._rows) / self._weight, 0.0)

    def seconds(self, rows: float) -> float:
        """Estimate the time of a batch with this many rows."""
        return self.per_row * rows + self.per_batch

    def rows_within(self, seconds: float) -> int:
        """Return the largest batch that takes no longer than this; at least 1."""
        if self.per_row <= 0.0:
            return 1 if self.per_batch > seconds else 1 << 30
        return max(1, math.floor((seconds - self.per_batch) / self.per_row))
