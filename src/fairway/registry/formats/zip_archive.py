"""Zip archives that hold models: checked lists of members, and small texts from them. Nothing is unpacked to disk."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from fairway.errors import RefusedError

LARGEST_TEXT = 64 << 20
"""Limit on the bytes of a member that is read whole."""


def members(name: str, path: Path) -> list[str]:
    """Return the names in an archive: none leads out of it, none occurs twice. Raises `RefusedError` for a damaged archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception as problem:  # noqa: BLE001  damage shows in many ways: struct.error, OverflowError, NotImplementedError
        message = f"{name} is a damaged archive: {problem}"
        raise RefusedError(message, fix="save the model again") from None
    seen: set[str] = set()
    for member in names:
        if member in seen:
            message = f"{name} holds {member!r} twice, and readers differ in which one they use"
            raise RefusedError(message, fix="do not use this file; save the model again")
        seen.add(member)
        if member.startswith(("/", "\\")) or ".." in member.replace("\\", "/").split("/"):
            message = f"{name} holds {member!r}, which leads out of the archive"
            raise RefusedError(message, fix="do not use this file; save the model again")
    return names


def is_archive(path: Path) -> bool:
    """Return whether the file ends like a zip archive."""
    return zipfile.is_zipfile(path)


def read_json(name: str, path: Path, member: str) -> Any:
    """Return a member of an archive as JSON; raise `RefusedError` if it is missing, too large or not JSON."""
    members(name, path)
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            text = file.read(LARGEST_TEXT + 1)
        if len(text) <= LARGEST_TEXT:
            return json.loads(text)
        message = f"{name}: its {member} is larger than {LARGEST_TEXT:,} bytes"
    except RecursionError:
        message = f"{name}: its {member} is nested too deeply"
    except Exception as problem:  # noqa: BLE001  the same
        message = f"{name}: its {member} cannot be read: {problem}"
    raise RefusedError(message, fix="save the model again")
