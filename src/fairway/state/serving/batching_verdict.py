"""Whether a replica runs rows of several requests together, and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BatchingBasis(StrEnum):
    """The basis of the decision."""

    DECLARED = "declared"
    """Declared by the service document, a flag or the model's `fairway.json`."""
    PROVEN = "proven"
    """Rows gave the same outputs alone and together in a test when the model was loaded."""
    MIXED = "mixed"
    """The outputs for a row depend on the other rows of its batch."""
    FIXED = "fixed"
    """The signature has no batch dimension that every tensor shares."""
    UNKNOWN = "unknown"
    """The test could not be completed."""


@dataclass(frozen=True, slots=True)
class BatchingVerdict:
    """The decision for one loaded model."""

    batched: bool
    basis: BatchingBasis
    detail: str = ""
    """The evidence in words."""
    rows: int = 0
    """Size of the largest batch in the test; larger batches are not formed. 0: no such bound."""

    def __str__(self) -> str:
        """`not batched (mixed): output 'y' ...`."""
        head = f"{'batched' if self.batched else 'not batched'} ({self.basis})"
        return f"{head}: {self.detail}" if self.detail else head
