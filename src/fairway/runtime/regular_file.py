"""Open regular files written by a program so that nothing that the program puts in their place can block or flood the reader.

Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def open_regular(path: Path | str) -> int:
    """Return a descriptor of a regular file for reading.

    Raises `OSError` for anything else: a pipe would block its reader for ever.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    message = f"{path} is not a regular file"
    raise OSError(message)


def read_regular(path: Path | str, limit: int) -> bytes:
    """Return the content of a regular file. Raises `OSError` for anything else, and for a file of more than `limit` bytes."""
    handle = open_regular(path)
    with os.fdopen(handle, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        message = f"{path} has more than {limit:,} bytes"
        raise OSError(message)
    return data
