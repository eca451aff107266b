"""A dataset version: numbered content that never changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """One version of a dataset."""

    name: str
    version: int
    digest: str
    """Of its manifest: names the content."""
    files: int
    size: int
    created: float
    is_file: bool = False
    """Whether it is one file, and not a folder."""

    def __str__(self) -> str:
        """`mnist@3`."""
        return f"{self.name}@{self.version}"
