"""What tracking needs of the outside, as roles: somewhere for files, and somebody who remembers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from fairway.state.tracking import Tracked

Kind = TypeVar("Kind", bound=Tracked)


@dataclass(frozen=True, slots=True)
class Shelf:
    """Whose files: those of a run, or those of a model that it logged."""

    namespace: str
    name: str
    job: str = ""
    """The run of ours with which the files go; empty: they stay."""


@dataclass(frozen=True, slots=True)
class ArtifactEntry:
    """A file or a folder on a shelf."""

    path: str
    """Within the folder that was asked for."""
    is_folder: bool
    size: int = 0


class Artifacts(Protocol):
    """Keeps files that clients send. Promises:

    1. No path, and no link on the way, leads out of its shelf: `UsageError`.
    2. A file is whole or not there, and a new one replaces the old in one step.
    """

    async def write(self, shelf: Shelf, path: str, pieces: AsyncIterator[bytes]) -> None:
        """Keep a file."""
        ...

    async def delete(self, shelf: Shelf, path: str) -> None:
        """Remove a file, or a folder with all that is in it; the empty path is all of the shelf. `NotFoundError` for none."""
        ...

    def find(self, shelf: Shelf, path: str) -> Path:
        """The file or folder at that path; the empty path is the shelf itself. `NotFoundError` when there is none."""
        ...

    def list(self, shelf: Shelf, path: str) -> list[ArtifactEntry]:
        """What lies in a folder, in order of name; nothing where there is no such folder."""
        ...


class TrackingStore(Protocol):
    """Remembers what clients told; a part of `Store`."""

    def tracked(self, kind: type[Kind], namespace: str, name: str) -> Kind | None:
        """What was tracked under that name; it goes with the run that owns it."""
        ...

    def all_tracked(self, kind: type[Kind], namespace: str, group: str = "") -> list[Kind]:
        """Everything of a kind, or what belongs to one group; the newest first."""
        ...
