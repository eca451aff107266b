"""Reset what the daemon inherits from the command that started it: priority, CPU affinity and resource limits."""

from __future__ import annotations

import contextlib
import os
import resource

_USUAL_STACK = 8 << 20
"""Stack limit in bytes. An unlimited stack changes the memory layout of all child processes."""


def shed() -> None:
    """Reset to normal priority and all CPUs, and raise the soft limits as far as this user may.

    Runs get the limits of their own callers. A lowered hard limit stays, unless this is root.
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
