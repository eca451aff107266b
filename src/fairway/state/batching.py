"""Whether a replica runs rows of several requests together, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BatchingBasis(StrEnum):
    """What the decision rests on."""

    DECLARED = "declared"
    """The service document, a flag or the model's `fairway.json` says so."""
    PROVEN = "proven"
    """Rows alone and together gave the same outputs when the model was loaded."""
    MIXED = "mixed"
    """The outputs for a row depend on the other rows of its batch."""
    FIXED = "fixed"
    """The signature has no batch dimension that every tensor shares."""
    UNKNOWN = "unknown"
    """The proof could not be completed."""


@dataclass(frozen=True, slots=True)
class BatchingVerdict:
    """The decision for one loaded model."""

    batched: bool
    basis: BatchingBasis
    detail: str = ""
    """The evidence in words."""
    rows: int = 0
    """The largest batch that was tried in a proof; larger ones are not made. 0: no such bound."""

    def __str__(self) -> str:
        """`not batched (mixed): output 'y' ...`."""
        head = f"{'batched' if self.batched else 'not batched'} ({self.basis})"
        return f"{head}: {self.detail}" if self.detail else head
