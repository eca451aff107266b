"""The conditions under which the caller's own processes run: priority, umask, CPUs, limits, GPUs. They hold for its runs too.

Every command that starts a run passes here, so it imports as little as `wire`.
"""

from __future__ import annotations

import os

from fairway.units.conditions import VISIBLE, visible_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")


def read_conditions() -> dict[str, Any]:
    """The conditions under which this process runs, as data: `state.job.Conditions`. On other systems than Linux, none."""
    if not hasattr(os, "sched_getaffinity"):
        return {}
    found: dict[str, Any] = {
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "umask": _umask(),
        "limits": _limits(),
        "devices": visible_devices(os.environ.get(VISIBLE)),
    }
    cpus = os.sched_getaffinity(0)
    return {**found, "affinity": sorted(cpus)} if len(cpus) < (os.cpu_count() or 1) else found


def _limits() -> dict[str, tuple[int, int]]:
    import resource

    pairs = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in _LIMITS}
    return {name: pair for name, pair in pairs.items() if pair != (resource.RLIM_INFINITY, resource.RLIM_INFINITY)}


def _umask() -> int | None:
    """Read, not set and set back: another thread may make a file meanwhile."""
    try:
        with open("/proc/self/status", "rb") as file:
            return next((int(line.split()[1], 8) for line in file if line.startswith(b"Umask:")), None)
    except OSError:
        return None
