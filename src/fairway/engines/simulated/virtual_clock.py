"""A clock that moves only when it is set."""

from __future__ import annotations


class VirtualClock:
    """The `Clock` port with the time that was set last."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Return seconds since the epoch of the simulation."""
        return self._now

    def move_to(self, time: float) -> None:
        """Set the time; it never goes back."""
        self._now = max(self._now, time)
