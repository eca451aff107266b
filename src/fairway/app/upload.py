"""Content that a client uploaded before the request that refers to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fairway.errors import UsageError

Held = Callable[[str], bool]
"""Return whether a caller may already read a version with the content of a digest, so that its bytes need not be uploaded."""


def nothing_held(_digest: str) -> bool:
    """Return False: all content must be uploaded."""
    return False


@dataclass(frozen=True, slots=True)
class UploadedContent:
    """A folder or a file that a caller uploaded from another machine; its pieces have arrived before."""

    owner: str
    """The user who uploaded it; pieces of other users do not count."""
    digest: str
    """The digest of its manifest."""
    is_file: bool = False
    """Whether it is a single file rather than a folder."""
    held: Held = field(default=nothing_held, compare=False)
    """Returns which content need not have been uploaded.

    The registry may hold content whose digest the owner knows but which the owner never had.
    """


def not_here() -> UsageError:
    """Return the refusal of uploaded content where files are read from their paths."""
    return UsageError("the daemon accepts no uploads: it reads files from their path", fix="send the path instead")
