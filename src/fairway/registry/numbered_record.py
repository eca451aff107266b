"""Numbered records in a folder: `1.json`, `2.json` ... each complete as soon as it exists, and never changed."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fairway.app.system import crash_point
from fairway.registry.blob import telling_full_disk

GONE = "gone"
"""The suffix of a removed record: its number is not used again."""

FREEABLE = "deleted-models"
"""A folder of a home with an empty file for the manifest of each deleted version, until its content is freed."""

_RECORD = re.compile(r"(?P<number>[1-9]\d*)\.(?P<kind>json|gone)")
_LOCK = "lock"


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the existing records, in order."""
    return sorted(number for number, kind in _found(folder) if kind != GONE)


def next_number(folder: Path) -> int:
    """Return one more than the highest number that was ever taken."""
    return max((number for number, _ in _found(folder)), default=0) + 1


def record(folder: Path, number: int, kind: str = "json") -> Path:
    """Return the path of a record."""
    return folder / f"{number}.{kind}"


def claim(folder: Path, number: int, content: bytes) -> bool:
    """Take the number for this record; return False if another process has just taken it."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = _written(folder, content)
    try:
        with crash_point.reach("registry.rename"):
            # A link, since a rename would silently replace another process's record.
            os.link(temporary, record(folder, number))
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    _sync(folder)
    return True


def put(path: Path, content: bytes) -> None:
    """Write or replace a small file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _written(path.parent, content)
    try:
        with crash_point.reach("registry.rename"):
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def take_away(folder: Path, number: int) -> None:
    """Remove a record in one step; its number stays taken."""
    with crash_point.reach("registry.rename"):
        os.rename(record(folder, number), record(folder, number, GONE))
    _sync(folder)


def move(folder: Path, target: Path, records: Mapping[int, bytes]) -> None:
    """Rename a folder of records, with new contents. Numbers that were taken under the new name stay taken."""
    temporary, previous = (target.parent / f".{secrets.token_hex(6)}" for _ in range(2))
    try:
        with telling_full_disk(target.parent):
            shutil.copytree(folder, temporary, ignore=shutil.ignore_patterns(".*", _LOCK))
        for number, content in records.items():
            put(record(temporary, number), content)
        highest = next_number(target) - 1
        if highest >= next_number(temporary):
            put(record(temporary, highest, GONE), b"")
        if target.exists():
            # It holds the remains of a model whose versions were all deleted.
            with crash_point.reach("registry.rename"):
                os.rename(target, previous)
        with crash_point.reach("registry.rename"):
            os.rename(temporary, target)
        _sync(target.parent)
        with crash_point.reach("registry.rename"):
            os.rename(folder, temporary)
        _sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(previous, ignore_errors=True)


def digests(root: Path) -> Iterator[str]:
    """Yield the content digests in the records of all folders in a folder."""
    for folder in sorted(root.iterdir()) if root.exists() else ():
        for number in numbers(folder):
            yield json.loads(record(folder, number).read_bytes())["digest"]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock among all threads and processes; the kernel releases it when the holder dies."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _found(folder: Path) -> list[tuple[int, str]]:
    try:
        listed = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [(int(match["number"]), match["kind"]) for name in listed if (match := _RECORD.fullmatch(name))]


def _written(folder: Path, content: bytes) -> Path:
    temporary = folder / f".{secrets.token_hex(6)}"
    try:
        with telling_full_disk(folder), temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
