"""The bytes of one file, read or mapped, and small JSON files."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairway.errors import RefusedError

WHOLE = 1 << 26
"""Bytes; larger files are not read into memory."""


@contextmanager
def content(path: Path, name: str, is_not: str) -> Iterator[memoryview]:
    """The file's bytes. A `ValueError` within means that it is something else."""
    with path.open("rb") as file:
        try:
            if os.fstat(file.fileno()).st_size <= WHOLE:
                yield memoryview(file.read())
            else:
                # Only of what is kept: reading a mapped file that was cut short meanwhile ends the process.
                yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError as problem:
            message = f"{name} is {is_not}: {problem}"
            raise RefusedError(message, fix="save the model again") from None


def json_object(path: Path) -> dict[str, Any]:
    """A small file that holds one JSON object; empty where it holds something else."""
    try:
        if path.stat().st_size > WHOLE:
            return {}
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
