"""Regular files that a program wrote, opened so that nothing that it put in their place can hold up or fill the reader.

Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def open_regular(path: Path | str) -> int:
    """A descriptor of a regular file, to read from. `OSError` for anything else: a pipe would hold up its reader for ever."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    message = f"{path} is no regular file"
    raise OSError(message)


def read_regular(path: Path | str, limit: int) -> bytes:
    """The content of a regular file. `OSError` for anything else, and for a file of more than `limit` bytes."""
    handle = open_regular(path)
    with os.fdopen(handle, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        message = f"{path} has more than {limit:,} bytes"
        raise OSError(message)
    return data
