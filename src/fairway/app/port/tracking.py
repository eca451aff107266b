"""The ports of tracking: storage for files and records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from fairway.state.mlflow_record import TrackingRecord

Kind = TypeVar("Kind", bound=TrackingRecord)


@dataclass(frozen=True, slots=True)
class ArtifactOwner:
    """The owner of files: a run, or a model that it logged."""

    namespace: str
    name: str
    job: str = ""
    """The job's run with which the files are deleted; empty: they stay."""


@dataclass(frozen=True, slots=True)
class ArtifactEntry:
    """A file or a folder of a shelf."""

    path: str
    """Path within the listed folder."""
    is_folder: bool
    size: int = 0


class ArtifactStore(Protocol):
    """Stores files that clients upload. Guarantees:

    1. No path, and no link within it, leads outside its shelf: `UsageError`.
    2. A file is complete or absent, and a new one replaces the old one atomically.
    """

    async def write(self, shelf: ArtifactOwner, path: str, pieces: AsyncIterator[bytes]) -> None:
        """Store a file."""
        ...

    async def delete(self, shelf: ArtifactOwner, path: str) -> None:
        """Remove a file, or a folder with its content; the empty path means the whole shelf. `NotFoundError` if there is none."""
        ...

    def find(self, shelf: ArtifactOwner, path: str) -> Path:
        """Return the file or folder at that path; the empty path is the shelf itself. `NotFoundError` if there is none."""
        ...

    def list(self, shelf: ArtifactOwner, path: str) -> list[ArtifactEntry]:
        """Return the entries of a folder, in order of name; none if the folder does not exist."""
        ...


class TrackingStore(Protocol):
    """Stores the records of clients; a part of `Store`."""

    def tracked(self, kind: type[Kind], namespace: str, name: str) -> Kind | None:
        """Return the record of that name; it is deleted together with the run that owns it."""
        ...

    def all_tracked(self, kind: type[Kind], namespace: str, group: str = "") -> list[Kind]:
        """Return all records of a kind, or those of one group; newest first."""
        ...
