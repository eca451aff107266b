"""Content that was sent ahead of what names it."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.errors import UsageError


@dataclass(frozen=True, slots=True)
class Sent:
    """A folder or a file that a caller sent from another machine; what it consists of has come before, piece by piece."""

    owner: str
    """Who sent it; nobody else's pieces count."""
    digest: str
    """Of its manifest."""
    is_file: bool = False
    """Whether it is one file, and not a folder."""


def not_here() -> UsageError:
    """The refusal of content that was sent to where files are read from their places."""
    return UsageError("nothing is sent here: files are read where they lie", fix="name their path")
