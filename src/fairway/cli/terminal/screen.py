"""The terminal of a run in the foreground: the task's output, and a few lines of status below it.

Guarantee: the output is written byte for byte, and the cursor is where the output left it when more output is
written. While a line of output is unfinished (a prompt, a progress bar) the status is hidden.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REDRAW = 0.125
"""Interval between redraws of the status, in seconds."""


class TerminalScreen:
    """Output and status on one terminal. Each update is passed to `emit` as a single write."""

    def __init__(self, emit: Callable[[bytes], None], width: Callable[[], int]) -> None:
        self._emit = emit
        self._width = width
        self._lines: list[str] = []
        self._painted = 0
        self._open_line = False

    def output(self, data: bytes) -> None:
        """Write output. The same write moves the status below it, so that nothing flickers."""
        if not data:
            return
        erase = self._erase()
        self._open_line = not data.endswith(b"\n")
        self._emit(erase + data + self._paint())

    def status(self, lines: Sequence[str]) -> None:
        """Replace the lines of the status."""
        self._lines = list(lines)
        self._emit(self._erase() + self._paint())

    def words(self, text: str) -> None:
        """Write a message of Fairway amid the output, on a line of its own."""
        erase = self._erase()
        break_first = b"\r\n" if self._open_line else b""
        self._open_line = False
        self._emit(erase + break_first + text.encode("utf-8", "replace") + b"\r\n" + self._paint())

    def ask(self, text: str) -> None:
        """Write a question on a line of its own; the status is hidden until the user answers."""
        erase = self._erase()
        break_first = b"\r\n" if self._open_line else b""
        self._open_line = True
        self._emit(erase + break_first + text.encode("utf-8", "replace"))

    def close(self) -> None:
        """Erase the status and leave the cursor at the beginning of a line."""
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
    """Return the text shortened to a width, with an ellipsis if it was cut."""
    if width <= 0 or len(text) <= width:
        return text
    return text[: max(0, width - 1)] + "…"
