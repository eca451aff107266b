"""Kernel calls that Python does not provide. Standard library only; imported before any fork."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PUNCH_HOLE_KEEP_SIZE = 0x03

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make this process adopt orphaned descendants in place of init."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Have this process killed when its parent dies. Call it in a new child, before exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def name_process(name: str) -> None:
    """Set the name that `ps` and `top` show; it is cut to 15 bytes."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def punch_hole(descriptor: int, offset: int, length: int) -> bool:
    """Free the blocks of a part of a file; the file's size stays. Return False where that is not supported."""
    call = getattr(_libc, "fallocate", None)
    if call is None:
        return False
    arguments = ctypes.c_int(descriptor), ctypes.c_int(_PUNCH_HOLE_KEEP_SIZE), ctypes.c_int64(offset), ctypes.c_int64(length)
    return int(call(*arguments)) == 0
