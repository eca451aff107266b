"""Information of the operating system: the time (read only here), and the members of groups."""

from __future__ import annotations

import contextlib
import grp
import json
import logging
import math
import os
import pwd
import time
from pathlib import Path

_log = logging.getLogger(__name__)
CLOCK = "clock.json"
"""The file of a home that keeps all clocks of one boot consistent."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_WORTH_TELLING = 60.0
"""Minimum difference of the wall clock that is logged, in seconds."""


class SystemClock:
    """Seconds since the epoch that never jump.

    The wall clock is read once; afterwards monotonic time is added, so that a corrected or tampered clock neither triggers nor
    delays timeouts. With an anchor file this holds for all clocks of one boot of the machine: the next daemon continues from the
    last reading of the wall clock. After a boot the wall clock is read again, since nothing else tells how long the machine was
    off.
    """

    def __init__(self, anchor: Path | None = None) -> None:
        self._anchor = anchor
        wall = time.time() - time.monotonic()
        stored = _read(anchor) if anchor is not None else None
        self._offset = wall if stored is None else stored
        if stored is None:
            self._keep()
        elif abs(wall - stored) > _WORTH_TELLING:
            _log.warning(
                "the wall clock moved by %+.0f seconds since the first daemon of this boot; run times do not include it",
                wall - stored,
            )

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._offset + time.monotonic()

    def follow_wall(self) -> None:
        """Read the wall clock again. Call it only while no run is active, since it would distort durations."""
        self._offset = time.time() - time.monotonic()
        self._keep()

    def _keep(self) -> None:
        if self._anchor is None:
            return
        # An empty file left by a crash counts as none: the next clock reads the wall clock.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._anchor, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({"boot": _boot_id(), "offset": self._offset}, file)


def is_of_this_boot(anchor: Path) -> bool:
    """Return whether a clock of this boot used the anchor file, so that recorded processes may still be alive."""
    return _read(anchor) is not None


def _read(anchor: Path) -> float | None:
    """Return the offset that an earlier clock of this boot used; None if there is none."""
    try:
        stored = json.loads(anchor.read_bytes())
        offset = stored["offset"]
        if stored["boot"] == _boot_id() != "" and isinstance(offset, float) and math.isfinite(offset):
            return offset
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class SystemGroups:
    """Users and groups of this machine, from any source that the system is configured for."""

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Return the names of a user's groups; none for an unknown user. A group without a name is given by its number."""
        try:
            numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
        except (KeyError, ValueError):
            return ()
        return tuple(_group_name(number) for number in numbers)


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
