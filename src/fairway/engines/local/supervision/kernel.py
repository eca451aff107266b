"""The few calls of the kernel that Python has no name for. Standard library only; loaded before any fork."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PUNCH_HOLE_KEEP_SIZE = 0x03

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Orphans among the descendants become children of this process instead of init's."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Be killed when the parent dies. To be called in a fresh child, before exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def name_process(name: str) -> None:
    """What `ps` and `top` show; the first 15 bytes count."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def punch_hole(descriptor: int, offset: int, length: int) -> bool:
    """Give the blocks of a part of a file back; its size stays. False where the file system cannot."""
    call = getattr(_libc, "fallocate", None)
    if call is None:
        return False
    arguments = ctypes.c_int(descriptor), ctypes.c_int(_PUNCH_HOLE_KEEP_SIZE), ctypes.c_int64(offset), ctypes.c_int64(length)
    return int(call(*arguments)) == 0
