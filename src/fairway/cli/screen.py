"""The terminal of a run in the foreground: the task's output above, a few lines of status below it.

Promise: the output is written exactly as it came, and the cursor is always where the output left it when
more of it is written. While a line of output is not finished (a prompt, a progress bar) the status is hidden.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REDRAW = 0.125
"""Seconds between two redraws of the status: eight a second."""


class Screen:
    """Output and status on one terminal. `emit` gets what to write, in one piece a time."""

    def __init__(self, emit: Callable[[bytes], None], width: Callable[[], int]) -> None:
        self._emit = emit
        self._width = width
        self._lines: list[str] = []
        self._painted = 0
        self._open_line = False

    def output(self, data: bytes) -> None:
        """Write output. The status is moved below it in the same write, so that nothing flickers."""
        if not data:
            return
        erase = self._erase()
        self._open_line = not data.endswith(b"\n")
        self._emit(erase + data + self._paint())

    def status(self, lines: Sequence[str]) -> None:
        """Show these lines from now on."""
        self._lines = list(lines)
        self._emit(self._erase() + self._paint())

    def words(self, text: str) -> None:
        """A line of our own amid the output; it begins on a line of its own."""
        erase = self._erase()
        break_first = b"\r\n" if self._open_line else b""
        self._open_line = False
        self._emit(erase + break_first + text.encode("utf-8", "replace") + b"\r\n" + self._paint())

    def ask(self, text: str) -> None:
        """A question of ours on a line of its own; the status is hidden until it is answered."""
        erase = self._erase()
        break_first = b"\r\n" if self._open_line else b""
        self._open_line = True
        self._emit(erase + break_first + text.encode("utf-8", "replace"))

    def close(self) -> None:
        """Take the status away; leave the cursor at the beginning of a line."""
        self._lines = []
        self._emit(self._erase() + (b"\r\n" if self._open_line else b""))
        self._open_line = False

    def _erase(self) -> bytes:
        if not self._painted:
            return b""
        up = f"\x1b[{self._painted - 1}A" if self._painted > 1 else ""
        self._painted = 0
        return f"\r{up}\x1b[J".encode()

    def _paint(self) -> bytes:
        if self._open_line or not self._lines:
            return b""
        width = self._width()
        self._painted = len(self._lines)
        return "\r\n".join(f"\x1b[2m{cut(line, width - 1)}\x1b[0m" for line in self._lines).encode("utf-8", "replace")


def cut(text: str, width: int) -> str:
    """The text, shortened to a width; an ellipsis says so."""
    if width <= 0 or len(text) <= width:
        return text
    return text[: max(0, width - 1)] + "…"
