"""Named crash points: every commit, spawn, rename and signal of the daemon passes one.

In production `reach` costs one comparison. The fault tests arm a point: there the process kills itself with SIGKILL, before or
after the operation, or the operation fails with an `OSError`. A test fails if a point listed here is never reached.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

POINTS = (
    "store.commit",
    "store.number",
    "engine.create",
    "engine.lock",
    "engine.spawn",
    "engine.signal",
    "engine.rename",
    "engine.forget",
    "secret.rename",
    "registry.rename",
)
"""Every crash point of the daemon, by name."""

API_POINTS = (
    "api.create",
    "api.apply",
    "api.patch",
    "api.replace",
    "api.delete",
    "api.bind",
    "api.evict",
    "api.scale",
)
"""Every write to a Kubernetes API, by verb: the crash points of operator and scheduler."""

SERVING_POINTS = (
    "router.rename",
    "router.spawn",
    "router.tell",
    "router.signal",
    "router.forget",
    "samples.rename",
    "samples.remove",
    "registry.remove",
)
"""Crash points that only a daemon with services and models reaches."""

RECOVERY_POINTS = (
    "backup.rename",
    "recovery.rename",
)
"""Crash points during a backup, and during the repair of a database."""

DIES = "dies at crash point"
"""Message that a process prints before it kills itself at an armed point, followed by the point."""

FAILS = "fails"
EVER = 1 << 62
"""Count for a failure at every pass."""
_armed: list[str | int] = []


def arm(place: str) -> None:
    """Arm `POINT:before` or `POINT:after`; `POINT:before:3` means the third pass. An empty string disarms.

    `POINT:fails` raises an `OSError` instead of the operation, every time; `POINT:fails:3` the first three times.
    `POINT/WHAT:before` applies only to operations on that object: `api.create/pods:before`.
    """
    _armed.clear()
    if place:
        point, moment, *count = place.split(":")
        points = (*POINTS, *SERVING_POINTS, *RECOVERY_POINTS, *API_POINTS)
        if point.partition("/")[0] not in points or moment not in ("before", "after", FAILS):
            message = f"{place!r} is no crash point; the points are {', '.join(points)}"
            raise ValueError(message)
        _armed.extend((f"{point}:{moment}", int(count[0]) if count else 1 if moment != FAILS else EVER))


@contextmanager
def reach(point: str, what: str = "") -> Iterator[None]:
    """Wrap an operation on `what`: `with crash.reach("store.commit"): connection.commit()`."""
    if _armed:
        _die_if_armed(f"{point}:before", f"{point}/{what}:before")
        _fail_if_armed(f"{point}:{FAILS}", f"{point}/{what}:{FAILS}")
    yield
    if _armed:
        _die_if_armed(f"{point}:after", f"{point}/{what}:after")


def _die_if_armed(*places: str) -> None:
    if _armed[0] not in places:
        return
    _armed[1] = int(_armed[1]) - 1
    if _armed[1] == 0:
        os.write(2, f"{DIES} {_armed[0]}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)


def _fail_if_armed(*places: str) -> None:
    if _armed[0] in places and int(_armed[1]) > 0:
        _armed[1] = int(_armed[1]) - 1
        words = f"injected failure at {_armed[0]}"
        os.write(2, f"{words}\n".encode())
        raise OSError(errno.EIO, words)
