"""How work on large requests shares the event loop with small requests."""

from __future__ import annotations

import time

_QUIET = 0.02
"""Seconds without a small request after which work on large ones needs no pauses."""
_BURST = 0.002
"""Seconds of work between two pauses. The event loop's timers have a resolution of milliseconds."""
_PAUSE = 3.0
"""Length of a pause, as a multiple of the work before it."""


class SmallRequestClock:
    """The time at which the last small request arrived."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def seen(self, at: float) -> None:
        """Record the arrival of a small request, by `time.perf_counter`."""
        self._last = at

    def recent(self) -> bool:
        """Whether a small request arrived within the last `_QUIET` seconds."""
        return time.perf_counter() - self._last < _QUIET


class LargeRequestPacer:
    """Pauses for one kind of work on large requests.

    While small requests arrive, the work takes at most a quarter of the time. Otherwise it takes all of it.
    """

    def __init__(self, small: SmallRequestClock) -> None:
        self._small = small
        self._spent = 0.0
        """Seconds of work since the last pause."""

    def alone(self) -> bool:
        """Whether no small requests are arriving."""
        return not self._small.recent()

    def pause_after(self, seconds: float) -> float:
        """Count this many seconds of work. Return how long to pause now; 0 for no pause."""
        self._spent += seconds
        if self._spent < _BURST:
            return 0.0
        pause = _PAUSE * self._spent if self._small.recent() else 0.0
        self._spent = 0.0
        return pause
