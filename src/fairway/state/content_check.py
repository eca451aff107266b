"""Integrity of stored content."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file of a version whose content is missing or does not match its digest."""

    version: str
    """`mnist@3`."""
    path: str
    """Path of the file; empty: the list of the version's files itself."""
    problem: str
    """In words: `it is missing`."""


@dataclass(frozen=True, slots=True)
class ContentVerification:
    """Result of verifying all content of some versions."""

    versions: int
    files: int
    """Number of distinct contents; content shared by several versions counts once."""
    size: int
    damaged: tuple[DamagedFile, ...] = ()
