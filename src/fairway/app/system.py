"""What the system itself tells: the time (its only read), and who belongs to which group."""

from __future__ import annotations

import grp
import os
import pwd
import time


class SystemClock:
    """Seconds since the epoch that never jump.

    The wall clock is read once; after that monotonic time is added, so that a corrected or
    tampered clock neither fires timeouts nor holds them back.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._offset + time.monotonic()


class SystemPeople:
    """Users and groups of this machine, wherever it gets them from."""

    def groups_of(self, user: str) -> tuple[str, ...]:
        """The names of a user's groups; none when nobody is called so. A group without a name goes by its number."""
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
