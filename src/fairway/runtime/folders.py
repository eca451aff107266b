"""Folders that appear whole or not at all: written aside, listed in a manifest, synced, renamed.

The disk side of `checkpoint.py`. Names in the checkpoint folder: `step-000000000123` is finished;
`.tmp-...` is being written; `.old-...` was replaced by a newer save of the same step and still counts
until the new one is in place; `.trash-...` is being deleted. A writer holds a lock on its folder,
so what a dead writer left behind is told from what a live one is busy with.
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

from fairway.runtime import contract, number
from fairway.runtime.regular import open_regular, read_regular

_FINISHED = contract.STEP_FOLDER.split("{", maxsplit=1)[0]
_MARKS = ".ranks"
MANIFEST_LIMIT = 16 << 20
"""Bytes of one manifest: some 100,000 files."""
MANIFESTS_LIMIT = 64 << 20
"""Bytes of all manifests that one look takes."""
_MOST_ENTRIES = 100_000
"""Names in the checkpoint folder that are looked at."""


class Aside:
    """A folder that is being written, locked as long as this object is open."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        self.path = path
        # A folder of our own gets its name only once it is locked; a shared one is told by its token.
        born = path if shared else path.with_name(f".new-{path.name}")
        born.mkdir(exist_ok=shared)
        self._handle = os.open(born, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._identity = os.fstat(self._handle).st_ino
        with suppress(OSError):  # a file system without locks: then leftovers stay until somebody deletes them
            fcntl.flock(self._handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not shared:
            os.rename(born, path)

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._handle)

    def leave_mark(self, rank: int) -> None:
        """Say that this rank's files are complete."""
        # Through the handle: a mark must never land in another folder that has the name by now.
        with suppress(FileExistsError):
            os.mkdir(_MARKS, dir_fd=self._handle)
        os.close(os.open(f"{_MARKS}/{rank}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=self._handle))
        if self.path.stat().st_ino != self._identity:
            message = f"{self.path} was given up by rank 0 while rank {rank} was writing"
            raise FileNotFoundError(message)

    def missing(self, ranks: int) -> list[int]:
        """Ranks that have not left their mark."""
        return [rank for rank in range(ranks) if not (self.path / _MARKS / str(rank)).exists()]

    def wait_for_marks(self, ranks: int, timeout: float) -> bool:
        """Wait until every rank has left its mark; False when that took longer than `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.missing(ranks):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        shutil.rmtree(self.path / _MARKS)
        return True


@contextmanager
def aside(root: Path, step: int, token: str, *, publisher: bool) -> Iterator[Aside]:
    """A folder to write into, removed at the end unless it was published.

    With a token, all who use the same token and step get the same folder; only the publisher removes it
    then, and the others find out in `leave_mark`.
    """
    name = f".tmp-{contract.STEP_FOLDER.format(step=step)}"
    folder = Aside(root / (f"{name}@{token}" if token else f"{name}-{secrets.token_hex(6)}"), shared=bool(token))
    try:
        yield folder
    finally:
        folder.close()
        if publisher or not token:
            discard(folder.path)


def publish(root: Path, folder: Aside, entry: dict[str, Any]) -> Path:
    """Make the folder a finished one. Afterwards `latest` names it. The manifest is `entry` and the files."""
    listing = {name: describe(folder.path / name) for name in files_in(folder.path)}
    _write_synced(folder.path / contract.MANIFEST, json.dumps({**entry, "files": listing}, indent=1))
    for inner in sorted({parent for name in listing for parent in Path(name).parents}, reverse=True):
        _sync(folder.path / inner)
    _sync(folder.path)
    target = root / contract.STEP_FOLDER.format(step=entry["step"])
    replaced = root / f".old-{target.name}-{secrets.token_hex(6)}"
    if target.exists():
        os.rename(target, replaced)
    os.rename(folder.path, target)
    _sync(root)
    pointer = root / f".{contract.LATEST}-{secrets.token_hex(6)}"
    _write_synced(pointer, target.name + "\n")
    os.replace(pointer, root / contract.LATEST)
    _sync(root)
    return target


def finished(root: Path, refuse: number.Refuse = number.ignore) -> list[tuple[Path, dict[str, Any]]]:
    """Every folder with a readable manifest, and the manifest; in no order.

    Of very many or very large manifests those of the highest steps. `refuse` is given the reason for one that is left out.
    """
    found, left = [], MANIFESTS_LIMIT
    for path in _candidates(root):
        if left <= 0:
            refuse("checkpoint", f"{path.name} is left out: the manifests have more than {MANIFESTS_LIMIT:,} bytes")
            break
        manifest, size = _read_manifest(path, refuse)
        left -= size
        if manifest is not None:
            found.append((path, manifest))
    return found


def _candidates(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in islice(entries, _MOST_ENTRIES)]
    except OSError:
        return []
    return [root / name for name in sorted(names, reverse=True) if name.startswith((_FINISHED, ".old-"))]


def prune(root: Path, keep: int, token: str) -> None:
    """Delete all but the newest `keep`, what was replaced, and what dead writers left."""
    found = sorted(finished(root), key=lambda one: int(one[1]["sequence"]), reverse=True)
    unwanted = [path for path, _ in found if path.name.startswith(_FINISHED)][keep:]
    for path in root.iterdir():
        ours = path.name.endswith(f"@{token}")  # a rank may be ahead of us, writing the next one
        abandoned = path.name.startswith(".tmp-") and not ours and _abandoned(path)
        if abandoned or path.name.startswith((".trash-", ".old-")):
            unwanted.append(path)
    for path in unwanted:
        discard(path)


def discard(path: Path) -> None:
    """Delete a folder so that a half-deleted one is never taken for a checkpoint; what cannot go stays for the next time."""
    trash = path if path.name.startswith(".trash-") else path.with_name(f".trash-{secrets.token_hex(6)}")
    with suppress(OSError):
        if trash != path:
            os.rename(path, trash)
        shutil.rmtree(trash)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest, or None where there is none that makes sense."""
    return _read_manifest(folder, number.ignore)[0]


def _read_manifest(folder: Path, refuse: number.Refuse) -> tuple[dict[str, Any] | None, int]:
    """The manifest and the length of its text."""
    try:
        text = read_regular(folder / contract.MANIFEST, MANIFEST_LIMIT)
    except FileNotFoundError:
        return None, 0  # A checkpoint that is being written, or was never finished.
    except OSError as error:
        refuse("checkpoint", f"checkpoint {folder.name} is left out: its manifest is not read ({error.strerror or error})")
        return None, 0
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    wrong = _what_is_wrong(found)
    if wrong:
        refuse("checkpoint", f"checkpoint {folder.name} is left out: {wrong}")
    return None if wrong else found, len(text)


def _what_is_wrong(manifest: object) -> str:
    """What makes this no manifest; empty: nothing."""
    if not isinstance(manifest, dict):
        return "its manifest is no JSON object"
    for name in ("step", "sequence", "world_size"):
        if not isinstance(manifest.get(name), int) or number.count(manifest[name]) is None:
            return f"{name} of its manifest is {number.shown(manifest.get(name))}; it is a whole number from 0 to 2**63 - 1"
    for name in ("meta", "files"):
        if not isinstance(manifest.get(name), dict):
            return f"{name} of its manifest is {number.shown(manifest.get(name))}, and no object"
    return ""


def matches(folder: Path, manifest: dict[str, Any], *, deep: bool) -> bool:
    """Whether the files are those of the manifest: by size, and by content with `deep`."""
    try:
        for name, expected in manifest["files"].items():
            path = folder / name
            if path.stat().st_size != expected["size"] or (deep and describe(path) != expected):
                return False
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return True


def files_in(folder: Path) -> list[str]:
    """Relative names of the regular files below a folder, besides the marks and the manifest.

    Raises:
        ValueError: there is something else, such as a link, whose content would not be in the checkpoint.
    """
    found = []
    for place, inner, names in os.walk(folder):
        if _MARKS in inner and Path(place) == folder:
            inner.remove(_MARKS)
        for name in [*names, *(name for name in inner if (Path(place) / name).is_symlink())]:
            path = Path(place) / name
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink() or not path.is_file():
                message = f"checkpoint file {relative!r} is a link or a special file; write a copy of what it points to"
                raise ValueError(message)
            if relative != contract.MANIFEST:
                found.append(relative)
    return sorted(found)


def describe(path: Path) -> dict[str, Any]:
    """Size and digest of a file, which is on the disk afterwards."""
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
