"""The conditions under which the caller's own processes run: priority, umask, CPUs, limits, GPUs. Its runs inherit them.

Every command that starts a run imports this module, so it imports as little as `wire`.
"""

from __future__ import annotations

import os

from fairway.units.environment_variable import VISIBLE, visible_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")


def read_conditions() -> dict[str, Any]:
    """Return this process's conditions as data (`state.job.Conditions`); empty on systems other than Linux."""
    if not hasattr(os, "sched_getaffinity"):
        return {}
    conditions: dict[str, Any] = {
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "umask": _umask(),
        "limits": _limits(),
        "devices": visible_devices(os.environ.get(VISIBLE)),
    }
    cpus = os.sched_getaffinity(0)
    return {**conditions, "affinity": sorted(cpus)} if len(cpus) < (os.cpu_count() or 1) else conditions


def _limits() -> dict[str, tuple[int, int]]:
    import resource

    pairs = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in _LIMITS}
    return {name: pair for name, pair in pairs.items() if pair != (resource.RLIM_INFINITY, resource.RLIM_INFINITY)}


def _umask() -> int | None:
    """Read the umask without setting it: another thread may create a file meanwhile."""
    try:
        with open("/proc/self/status", "rb") as file:
            return next((int(line.split()[1], 8) for line in file if line.startswith(b"Umask:")), None)
    except OSError:
        return None
