"""Folders that are published atomically: written under a temporary name, listed in a manifest, synced, renamed.

The disk side of `checkpoint.py`. Names in the checkpoint folder: `step-000000000123` is complete; `.tmp-...` is being written;
`.old-...` was replaced by a newer save of the same step and still counts until the new one is in place; `.trash-...` is being
deleted. A writer holds a lock on its folder, so the leftovers of a dead writer can be distinguished from the folder of a live
one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from fairway.runtime import number, task_contract
from fairway.runtime.regular_file import open_regular, read_regular

_FINISHED = task_contract.STEP_FOLDER.split("{", maxsplit=1)[0]
_MARKS = ".ranks"
MANIFEST_LIMIT = 16 << 20
"""Maximum size of a manifest in bytes; enough for some 100,000 files."""
MANIFESTS_LIMIT = 64 << 20
"""Maximum total size in bytes of the manifests read by one call."""
_MOST_ENTRIES = 100_000
"""Maximum number of directory entries examined in the checkpoint folder."""


class TemporaryFolder:
    """A folder that is being written. It is locked until this object is closed."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        self.path = path
        # A private folder gets its name only once it is locked; a shared one is identified by its token.
        born = path if shared else path.with_name(f".new-{path.name}")
        born.mkdir(exist_ok=shared)
        self._handle = os.open(born, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._identity = os.fstat(self._handle).st_ino
        with suppress(OSError):  # a file system without locks: then leftovers stay until they are deleted by hand
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not shared:
            os.rename(born, path)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._handle)

    def leave_mark(self, rank: int) -> None:
        """Mark this rank's files as complete."""
        # Created relative to the handle: a mark must never end up in another folder that has taken the name meanwhile.
        with suppress(FileExistsError):
            os.mkdir(_MARKS, dir_fd=self._handle)
        os.close(os.open(f"{_MARKS}/{rank}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=self._handle))
        if self.path.stat().st_ino != self._identity:
            message = f"{self.path} was abandoned by rank 0 while rank {rank} was writing"
            raise FileNotFoundError(message)

    def missing(self, ranks: int) -> list[int]:
        """Return the ranks that have not left their mark."""
        return [rank for rank in range(ranks) if not (self.path / _MARKS / str(rank)).exists()]

    def wait_for_marks(self, ranks: int, timeout: float) -> bool:
        """Wait until every rank has left its mark; return False if that takes longer than `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.missing(ranks):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        shutil.rmtree(self.path / _MARKS)
        return True


@contextmanager
def aside(root: Path, step: int, token: str, *, publisher: bool) -> Iterator[TemporaryFolder]:
    """Yield a folder to write into; it is removed at the end unless it was published.

    With a token, all callers with the same token and step get the same folder. Only the publisher removes it then, and the others
    detect that in `leave_mark`.
    """
    name = f".tmp-{task_contract.STEP_FOLDER.format(step=step)}"
    folder = TemporaryFolder(root / (f"{name}@{token}" if token else f"{name}-{secrets.token_hex(6)}"), shared=bool(token))
    try:
        yield folder
    finally:
        folder.close()
        if publisher or not token:
            discard(folder.path)


def publish(root: Path, folder: TemporaryFolder, entry: dict[str, Any]) -> Path:
    """Publish the folder as a complete one. Afterwards `latest` points to it. The manifest is `entry` with the files."""
    listing = {name: describe(folder.path / name) for name in files_in(folder.path)}
    _write_synced(folder.path / task_contract.MANIFEST, json.dumps({**entry, "files": listing}, indent=1))
    for subfolder in sorted({parent for name in listing for parent in Path(name).parents}, reverse=True):
        _sync(folder.path / subfolder)
    _sync(folder.path)
    target = root / task_contract.STEP_FOLDER.format(step=entry["step"])
    replaced = root / f".old-{target.name}-{secrets.token_hex(6)}"
    if target.exists():
        os.rename(target, replaced)
    os.rename(folder.path, target)
    _sync(root)
    pointer = root / f".{task_contract.LATEST}-{secrets.token_hex(6)}"
    _write_synced(pointer, target.name + "\n")
    os.replace(pointer, root / task_contract.LATEST)
    _sync(root)
    return target


def finished(root: Path, refuse: number.Refuse = number.ignore) -> list[tuple[Path, dict[str, Any]]]:
    """Return every folder with a readable manifest, and the manifest, in no particular order.

    If there are very many or very large manifests, only those of the highest steps. `refuse` is called with the reason for each
    that is left out.
    """
    checkpoints, remaining = [], MANIFESTS_LIMIT
    for path in _candidates(root):
        if remaining <= 0:
            refuse("checkpoint", f"{path.name} is left out: the manifests have more than {MANIFESTS_LIMIT:,} bytes")
            break
        manifest, size = _read_manifest(path, refuse)
        remaining -= size
        if manifest is not None:
            checkpoints.append((path, manifest))
    return checkpoints


def _candidates(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in islice(entries, _MOST_ENTRIES)]
    except OSError:
        return []
    return [root / name for name in sorted(names, reverse=True) if name.startswith((_FINISHED, ".old-"))]


def prune(root: Path, keep: int, token: str) -> None:
    """Delete all but the newest `keep` checkpoints, replaced folders, and leftovers of dead writers."""
    newest_first = sorted(finished(root), key=lambda checkpoint: int(checkpoint[1]["sequence"]), reverse=True)
    unwanted = [path for path, _ in newest_first if path.name.startswith(_FINISHED)][keep:]
    for path in root.iterdir():
        is_current = path.name.endswith(f"@{token}")  # another rank may already be writing the next one
        abandoned = path.name.startswith(".tmp-") and not is_current and _abandoned(path)
        if abandoned or path.name.startswith((".trash-", ".old-")):
            unwanted.append(path)
    for path in unwanted:
        discard(path)


def discard(path: Path) -> None:
    """Delete a folder so that a half-deleted one is never taken for a checkpoint.

    A folder that cannot be deleted is left for the next attempt.
    """
    trash = path if path.name.startswith(".trash-") else path.with_name(f".trash-{secrets.token_hex(6)}")
    with suppress(OSError):
        if trash != path:
            os.rename(path, trash)
        shutil.rmtree(trash)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest, or None if there is no valid one."""
    return _read_manifest(folder, number.ignore)[0]


def _read_manifest(folder: Path, refuse: number.Refuse) -> tuple[dict[str, Any] | None, int]:
    """Return the manifest and the length of its text."""
    try:
        text = read_regular(folder / task_contract.MANIFEST, MANIFEST_LIMIT)
    except FileNotFoundError:
        return None, 0  # A checkpoint that is being written, or was never completed.
    except OSError as error:
        refuse("checkpoint", f"checkpoint {folder.name} is left out: its manifest cannot be read ({error.strerror or error})")
        return None, 0
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        manifest = None
    problem = _what_is_wrong(manifest)
    if problem:
        refuse("checkpoint", f"checkpoint {folder.name} is left out: {problem}")
    return None if problem else manifest, len(text)


def _what_is_wrong(manifest: object) -> str:
    """Return what is wrong with the manifest; empty if it is valid."""
    if not isinstance(manifest, dict):
        return "its manifest is not a JSON object"
    for name in ("step", "sequence", "world_size"):
        if not isinstance(manifest.get(name), int) or number.count(manifest[name]) is None:
            return f"{name} of its manifest is {number.shown(manifest.get(name))}; it must be a whole number from 0 to 2**63 - 1"
    for name in ("meta", "files"):
        if not isinstance(manifest.get(name), dict):
            return f"{name} of its manifest is {number.shown(manifest.get(name))}, not an object"
    return ""


def matches(folder: Path, manifest: dict[str, Any], *, deep: bool) -> bool:
    """Return whether the files match the manifest: by size, and by content with `deep`."""
    try:
        for name, expected in manifest["files"].items():
            path = folder / name
            if path.stat().st_size != expected["size"] or (deep and describe(path) != expected):
                return False
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return True


def files_in(folder: Path) -> list[str]:
    """Return the relative names of the regular files below a folder, except the marks and the manifest.

    Raises:
        ValueError: there is anything else, such as a link, whose content would not be in the checkpoint.
    """
    relative_names = []
    for parent, subfolders, names in os.walk(folder):
        if _MARKS in subfolders and Path(parent) == folder:
            subfolders.remove(_MARKS)
        for name in [*names, *(name for name in subfolders if (Path(parent) / name).is_symlink())]:
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink() or not path.is_file():
                message = f"checkpoint file {relative!r} is a link or a special file; write a copy of what it points to"
                raise ValueError(message)
            if relative != task_contract.MANIFEST:
                relative_names.append(relative)
    return sorted(relative_names)


def describe(path: Path) -> dict[str, Any]:
    """Return size and digest of a file, and sync the file to the disk."""
    digest, size = hashlib.sha256(), 0
    with os.fdopen(open_regular(path), "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
            size += len(block)
        os.fsync(file.fileno())
    return {"size": size, "sha256": digest.hexdigest()}


def _abandoned(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
