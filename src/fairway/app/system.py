"""The real clock: the only read of the time."""

from __future__ import annotations

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
