"""Stores files that MLflow clients upload, beside the run that they belong to, so that they are deleted with it.

jobs/<namespace>/<run>/artifacts/          of the run itself
jobs/<namespace>/<run>/tracked/<name>/     of runs and models created within it
tracked/<namespace>/<name>/                of those created outside of any job
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from fairway.app.port.tracking import ArtifactEntry, ArtifactOwner
from fairway.app.system import crash_point
from fairway.engines.local.home import EngineHome, make_private
from fairway.errors import NotFoundError, RefusedError, UsageError
from fairway.state.job import JobKey

_ASIDE = ".aside"
_LONGEST = 1024


class LocalArtifacts:
    """The `Artifacts` port in folders of a home."""

    def __init__(self, home: EngineHome) -> None:
        self._home = home

    def forget_halves(self) -> None:
        """Remove partial uploads of an earlier daemon."""
        with contextlib.suppress(FileNotFoundError):
            for path in (self._home.path / "tracked" / _ASIDE).iterdir():
                _remove(path)

    async def write(self, shelf: ArtifactOwner, path: str, pieces: AsyncIterator[bytes]) -> None:
        """Store a file. It becomes visible when it is complete."""
        parts = _parts(path)
        if not parts:
            message = "the path of the file is empty"
            raise UsageError(message, fix="name the file")
        aside = make_private(self._home.path / "tracked" / _ASIDE) / secrets.token_hex(8)
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                async for piece in pieces:
                    # In a thread, so that a slow disk does not delay other requests.
                    await asyncio.to_thread(file.write, piece)
            self._publish(shelf, parts, aside)
        except OSError as problem:
            message = f"{path!r} could not be stored: {problem.strerror}"
            raise RefusedError(
                message, fix="choose a path that is not taken by a file or folder, or free some space"
            ) from problem
        finally:
            aside.unlink(missing_ok=True)

    async def delete(self, shelf: ArtifactOwner, path: str) -> None:
        """Remove a file, or a folder with its contents, in one step."""
        parts = _parts(path)
        target = self.find(shelf, path)
        aside = make_private(self._home.path / "tracked" / _ASIDE) / secrets.token_hex(8)
        try:
            with crash_point.reach("engine.rename"):
                os.rename(target, aside)
            if not parts:
                # Keep the folder of the run itself: its program may write to it again.
                make_private(target)
        except OSError as problem:
            message = f"{path!r} could not be removed: {problem.strerror}"
            raise RefusedError(message, fix="look at the folder of the run") from problem
        await asyncio.to_thread(_remove, aside)

    def find(self, shelf: ArtifactOwner, path: str) -> Path:
        """Return the file or folder at that path."""
        target = self._within(shelf, _parts(path))
        if not target.exists():
            message = f"there is no artifact {path!r} of {shelf.name}"
            raise NotFoundError(message, fix="list the artifacts")
        return target

    def list(self, shelf: ArtifactOwner, path: str) -> builtins.list[ArtifactEntry]:
        """Return the entries of a folder, sorted by name."""
        folder = self._within(shelf, _parts(path))
        if not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            sorted_entries = sorted(entries, key=lambda entry: entry.name)
        return [
            ArtifactEntry(entry.name, entry.is_dir(), 0 if entry.is_dir() else entry.stat().st_size) for entry in sorted_entries
        ]

    def _publish(self, shelf: ArtifactOwner, parts: tuple[str, ...], aside: Path) -> None:
        root = self._root(shelf)
        folder = root.joinpath(*parts[:-1])
        make_private(root)
        _check_inside(root, folder)
        make_private(folder)
        _check_inside(root, folder)
        with crash_point.reach("engine.rename"):
            os.replace(aside, folder / parts[-1])

    def _within(self, shelf: ArtifactOwner, parts: tuple[str, ...]) -> Path:
        root = self._root(shelf)
        target = root.joinpath(*parts)
        _check_inside(root, target)
        return target

    def _root(self, shelf: ArtifactOwner) -> Path:
        (name,) = _parts(shelf.name)
        if not shelf.job:
            (namespace,) = _parts(shelf.namespace)
            return self._home.path / "tracked" / namespace / name
        folder = self._home.job(JobKey(shelf.namespace, shelf.job))
        return folder / "artifacts" if name == shelf.job else folder / "tracked" / name


def _parts(path: str) -> tuple[str, ...]:
    """Split a path into names; raise `UsageError` for one that is no plain relative path."""
    parts = tuple(part for part in path.split("/") if part)
    odd = path.startswith("/") or "\\" in path or any(ord(letter) < 32 for letter in path)
    if odd or len(path) > _LONGEST or any(part in (".", "..") or len(part.encode()) > 255 for part in parts):
        message = f"{path[:80]!r} is not a valid path of an artifact"
        raise UsageError(message, fix="use a relative path of plain names, without ..")
    return parts


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _check_inside(root: Path, path: Path) -> None:
    """Raise if the path leads out of the root through a symbolic link that a program has made."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        message = f"{path.name!r} leads out of the folder of artifacts"
        raise UsageError(message, fix="log the file itself, not a link")
