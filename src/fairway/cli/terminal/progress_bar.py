"""Progress bar for long operations."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 2.0
"""Seconds after which a long operation shows its progress."""
REDRAW = 0.1
BAR = 24


class ProgressBar:
    """A progress bar on the terminal; prints nothing unless `shown`."""

    def __init__(
        self, *, shown: bool, clock: Callable[[], float] = time.monotonic, amount: Callable[[int], str] = "{:,}".format
    ) -> None:
        self._shown = shown
        self._clock = clock
        self._amount = amount
        self._next = clock() + PATIENCE
        self._painted = False

    def __call__(self, what: str, done: int, total: int) -> None:
        """Redraw the bar: `done` of `total` is complete."""
        now = self._clock()
        if not self._shown or now < self._next:
            return
        self._next, self._painted = now + REDRAW, True
        fraction = done / total if total else 1.0
        bar = "█" * int(fraction * BAR)
        sys.stderr.write(f"\r\x1b[K{what:16} {bar:░<{BAR}} {fraction:4.0%}  {self._amount(done)} of {self._amount(total)}")
        sys.stderr.flush()

    def close(self) -> None:
        """Erase the bar."""
        if self._painted:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
