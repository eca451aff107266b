"""Content that was kept, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """One file of a version whose content is missing or is not what its digest says."""

    version: str
    """`mnist@3`."""
    path: str
    """Empty: the list of the version's files itself."""
    problem: str
    """In words: `it is missing`."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a look at all content of some versions has found."""

    versions: int
    files: int
    """Distinct contents: what several versions share counts once."""
    size: int
    damaged: tuple[Damage, ...] = ()
