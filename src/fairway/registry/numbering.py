"""Numbered records in a folder: `1.json`, `2.json` ... each whole as soon as it is there, and never changed."""

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

from fairway.app import crash
from fairway.registry.blobs import telling_full_disk

GONE = "gone"
"""What a record's name ends with once it was taken away: its number is not used again."""

FREEABLE = "deleted-models"
"""A folder of a home: an empty file for the manifest of each version that was deleted, until its content was freed."""

_RECORD = re.compile(r"(?P<number>[1-9]\d*)\.(?P<kind>json|gone)")
_LOCK = "lock"


def numbers(folder: Path) -> list[int]:
    """The numbers of the records that are there, in order."""
    return sorted(number for number, kind in _found(folder) if kind != GONE)


def next_number(folder: Path) -> int:
    """One more than any that was ever taken."""
    return max((number for number, _ in _found(folder)), default=0) + 1


def record(folder: Path, number: int, kind: str = "json") -> Path:
    """Where a record lies."""
    return folder / f"{number}.{kind}"


def claim(folder: Path, number: int, content: bytes) -> bool:
    """Take the number for this record; False when somebody else just did."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = _written(folder, content)
    try:
        with crash.reach("registry.rename"):
            # A link, since a rename would silently take the place of another's record.
            os.link(aside, record(folder, number))
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    _sync(folder)
    return True


def put(path: Path, content: bytes) -> None:
    """Write a small file over the one that is there, all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _written(path.parent, content)
    try:
        with crash.reach("registry.rename"):
            os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    _sync(path.parent)


def take_away(folder: Path, number: int) -> None:
    """Let a record be gone, in one step; its number stays taken."""
    with crash.reach("registry.rename"):
        os.rename(record(folder, number), record(folder, number, GONE))
    _sync(folder)


def move(folder: Path, target: Path, records: Mapping[int, bytes]) -> None:
    """Give a folder of records another name and these contents. Numbers that were taken under the other name stay taken."""
    aside, before = (target.parent / f".{secrets.token_hex(6)}" for _ in range(2))
    try:
        with telling_full_disk(target.parent):
            shutil.copytree(folder, aside, ignore=shutil.ignore_patterns(".*", _LOCK))
        for number, content in records.items():
            put(record(aside, number), content)
        taken = next_number(target) - 1
        if taken >= next_number(aside):
            put(record(aside, taken, GONE), b"")
        if target.exists():
            # It holds what is left of a model whose versions were all deleted.
            with crash.reach("registry.rename"):
                os.rename(target, before)
        with crash.reach("registry.rename"):
            os.rename(aside, target)
        _sync(target.parent)
        with crash.reach("registry.rename"):
            os.rename(folder, aside)
        _sync(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(before, ignore_errors=True)


def digests(root: Path) -> Iterator[str]:
    """What the records of all folders in a folder name as their content."""
    for folder in sorted(root.iterdir()) if root.exists() else ():
        for number in numbers(folder):
            yield json.loads(record(folder, number).read_bytes())["digest"]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One at a time, among all threads and processes; the kernel lets go when the holder dies."""
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
    aside = folder / f".{secrets.token_hex(6)}"
    try:
        with telling_full_disk(folder), aside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return aside


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
