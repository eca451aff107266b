"""A clock that stands until it is moved."""

from __future__ import annotations


class VirtualClock:
    """The `Clock` port: the time is what it was moved to last."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Seconds since the epoch of the simulation."""
        return self._now

    def move_to(self, time: float) -> None:
        """It is so late now; never earlier than before."""
        self._now = max(self._now, time)
