"""What tracking needs of the outside, as roles: somewhere for files, and a registry of models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairway.state.model import Lineage, ModelVersion


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

    def find(self, shelf: Shelf, path: str) -> Path:
        """The file or folder at that path; the empty path is the shelf itself. `NotFoundError` when there is none."""
        ...

    def list(self, shelf: Shelf, path: str) -> list[ArtifactEntry]:
        """What lies in a folder, in order of name; nothing where there is no such folder."""
        ...


@dataclass(frozen=True, slots=True)
class Registration:
    """What is said of a version besides its content."""

    lineage: Lineage
    metrics: dict[str, float]
    tags: dict[str, str]
    allow_pickle: bool = False


class ModelKeeper(Protocol):
    """Keeps models. Promises that a version is whole and never changes; names are those of the registry."""

    async def register(self, name: str, folder: str, said: Registration) -> ModelVersion:
        """Keep a folder or a file as a version."""
        ...

    async def find(self, reference: str) -> ModelVersion:
        """The version that `mnist`, `mnist@7` or `mnist@champion` means; `NotFoundError` with what there is."""
        ...

    async def versions(self, name: str = "") -> list[ModelVersion]:
        """Every version of a model, or of all of them, oldest first."""
        ...

    async def set_alias(self, version: ModelVersion, alias: str) -> None:
        """Let the alias mean this version, and no other."""
        ...

    async def drop_alias(self, name: str, alias: str) -> None:
        """Take an alias away; `NotFoundError` when it is not there."""
        ...

    async def folder(self, version: ModelVersion) -> Path:
        """A folder with the version's files."""
        ...
