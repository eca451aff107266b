"""Access to the bytes of one file, read or mapped, and to small JSON files."""

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
"""Limit in bytes; larger files are not read into memory."""


@contextmanager
def content(path: Path, name: str, is_not: str) -> Iterator[memoryview]:
    """Yield the file's bytes. A `ValueError` within the block means that the file is something else."""
    with path.open("rb") as file:
        try:
            if os.fstat(file.fileno()).st_size <= WHOLE:
                yield memoryview(file.read())
            else:
                # For stored files only: reading a mapped file that was truncated meanwhile kills the process.
                yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError as problem:
            message = f"{name} is {is_not}: {problem}"
            raise RefusedError(message, fix="save the model again") from None


def json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a small file; empty if it holds something else."""
    try:
        if path.stat().st_size > WHOLE:
            return {}
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
