"""File locks that live as long as any copy of their descriptor is open, in whatever process.

They are open-file-description locks: they are inherited through fork and passed through sockets, the kernel drops them with the
last copy however its holder died, and testing a lock does not take it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path

SAFE = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
"""Flags for files that another user may have put there: the open neither blocks nor follows a link."""
_FLOCK = struct.Struct("hhqqi4x")
"""Type, whence, start, length, process."""


def open_regular(path: Path | str, flags: int = os.O_RDONLY, *, folder: int | None = None, owner: int | None = None) -> int:
    """Open a regular file, optionally of this owner only. Never blocks; raises `OSError` for anything else."""
    descriptor = os.open(path, flags | SAFE, 0o600, dir_fd=folder)
    state = os.fstat(descriptor)
    if stat.S_ISREG(state.st_mode) and owner in (None, state.st_uid):
        return descriptor
    os.close(descriptor)
    why = f"it belongs to user {state.st_uid}" if stat.S_ISREG(state.st_mode) else "it is not a regular file"
    raise OSError(errno.EPERM, why, str(path))


def try_lock(descriptor: int, start: int = 0, *, shared: bool = False) -> bool:
    """Lock one byte of the file if it is free. Locking it again converts the lock between shared and exclusive."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _request(fcntl.F_RDLCK if shared else fcntl.F_WRLCK, start))
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(descriptor: int, start: int = 0) -> None:
    """Release one byte."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, start))


def is_held(path: Path | str, start: int = 0, *, exclusively: bool = False) -> bool:
    """Return whether that byte of the file is locked, or locked exclusively. The test changes nothing."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return False
    try:
        return is_locked(descriptor, start, exclusively=exclusively)
    finally:
        os.close(descriptor)


def is_locked(descriptor: int, start: int = 0, *, length: int = 1, exclusively: bool = False) -> bool:
    """Return whether another open file holds a lock on these bytes, or an exclusive one. A length of 0 reaches to the end.

    Only an exclusive lock proves that its holder could write to the file: every reader may take a shared one.
    """
    kind = fcntl.F_RDLCK if exclusively else fcntl.F_WRLCK
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _request(kind, start, length))
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def take(path: Path) -> int | None:
    """Take an exclusive lock on a file; return its descriptor, or None when it is held."""
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def release(*descriptors: int) -> None:
    """Close these descriptors of locks."""
    for descriptor in descriptors:
        os.close(descriptor)


def _request(kind: int, start: int, length: int = 1) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
