"""Content that was sent ahead of what names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fairway.errors import UsageError

Held = Callable[[str], bool]
"""Whether a caller may already read a version that holds the content of a digest, so that its bytes need not be sent."""


def nothing_held(_digest: str) -> bool:
    """Nothing is held: all contents must be sent."""
    return False


@dataclass(frozen=True, slots=True)
class Sent:
    """A folder or a file that a caller sent from another machine; what it consists of has come before, piece by piece."""

    owner: str
    """Who sent it; nobody else's pieces count."""
    digest: str
    """Of its manifest."""
    is_file: bool = False
    """Whether it is one file, and not a folder."""
    held: Held = field(default=nothing_held, compare=False)
    """What of it need not have been sent. The registry may have a content whose digest the owner knows, and never had."""


def not_here() -> UsageError:
    """The refusal of content that was sent to where files are read from their places."""
    return UsageError("nothing is sent here: files are read where they lie", fix="name their path")
