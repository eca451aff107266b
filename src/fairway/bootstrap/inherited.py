"""What the daemon must not keep of the command that happened to start it: its priority, CPUs and limits."""

from __future__ import annotations

import contextlib
import os
import resource

_USUAL_STACK = 8 << 20
"""Bytes. An unlimited stack changes how the kernel lays out the memory of everything that is started."""


def shed() -> None:
    """Run at usual priority on all CPUs, with the soft limits raised as far as this user may.

    Runs get the conditions of their own callers. A hard limit that was lowered stays, unless this is root.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    for name in ("AS", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS"):
        number = getattr(resource, f"RLIMIT_{name}")
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(number, (resource.getrlimit(number)[1],) * 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if 0 <= soft < _USUAL_STACK:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_STACK, (_USUAL_STACK if hard < 0 else min(_USUAL_STACK, hard), hard))
