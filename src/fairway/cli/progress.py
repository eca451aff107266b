"""How far something is that takes a while."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 2.0
"""Whatever takes longer than so many seconds says how far it is."""
REDRAW = 0.1
BAR = 24


class Progress:
    """A bar on the terminal; nothing where nobody looks."""

    def __init__(
        self, *, shown: bool, clock: Callable[[], float] = time.monotonic, amount: Callable[[int], str] = "{:,}".format
    ) -> None:
        self._shown = shown
        self._clock = clock
        self._amount = amount
        self._next = clock() + PATIENCE
        self._painted = False

    def __call__(self, what: str, done: int, total: int) -> None:
        """So much is done."""
        now = self._clock()
        if not self._shown or now < self._next:
            return
        self._next, self._painted = now + REDRAW, True
        part = done / total if total else 1.0
        bar = "█" * int(part * BAR)
        sys.stderr.write(f"\r\x1b[K{what:16} {bar:░<{BAR}} {part:4.0%}  {self._amount(done)} of {self._amount(total)}")
        sys.stderr.flush()

    def close(self) -> None:
        """Take the bar away."""
        if self._painted:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
