"""Formatting of task output: complete lines, prefixed with the time or with the name of the task."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

_COLOURS = ("36", "33", "32", "35", "34", "96", "93", "92", "95", "94")
_HELD = 65536
"""Length in bytes above which a line is passed on in parts."""


class LogMerger:
    """Merges the output of tasks, piece by piece, so that lines of two tasks never mix.

    An unfinished line is held back until `flush`, in case the rest of it arrives soon; a line that ends in a
    carriage return (a progress bar) is passed on at once, and the next line overwrites it.
    """

    def __init__(self, tasks: Sequence[str] = (), *, colour: bool = False) -> None:
        self._width = max((len(task) for task in tasks), default=0)
        self._colour = colour
        self._order = {task: index for index, task in enumerate(tasks)}
        self._held: dict[str, bytes] = {}
        self._open = ""
        """The task whose unfinished line is on the screen."""
        self._mid_line = False
        """Whether there is text before the cursor on that line."""

    @property
    def holding(self) -> bool:
        """Whether `flush` would print something."""
        return bool(self._held)

    def feed(self, task: str, data: bytes) -> bytes:
        """Take a piece of a task's output; return the bytes to print now."""
        pieces = (self._held.pop(task, b"") + data).splitlines(keepends=True)
        rest = pieces.pop() if pieces and not pieces[-1].endswith((b"\n", b"\r")) else b""
        out: list[bytes] = []
        for piece in pieces:
            self._piece(task, piece, out)
        if rest and (len(rest) > _HELD or (self._open == task and self._mid_line)):
            self._piece(task, rest, out)
        elif rest:
            self._held[task] = rest
        return b"".join(out)

    def flush(self) -> bytes:
        """Return the unfinished lines; called when no output has arrived for a while."""
        out: list[bytes] = []
        for task, rest in self._held.items():
            self._piece(task, rest, out)
        self._held.clear()
        return b"".join(out)

    def _piece(self, task: str, piece: bytes, out: list[bytes]) -> None:
        if self._open and self._open != task:
            out.append(b"\n")
            self._open, self._mid_line = "", False
        if not self._mid_line:
            out.append(self._prefix(task))
        out.append(piece)
        if piece.endswith(b"\n"):
            self._open, self._mid_line = "", False
        else:
            self._open, self._mid_line = task, not piece.endswith(b"\r")

    def _prefix(self, task: str) -> bytes:
        index = self._order.setdefault(task, len(self._order))
        text = f"{task:<{self._width}} | "
        return (f"\x1b[{_COLOURS[index % len(_COLOURS)]}m{text}\x1b[0m" if self._colour else text).encode()


class LogStamper:
    """Prefixes each line of one task's output with its time, piece by piece; a carriage return also begins a line."""

    def __init__(self) -> None:
        self._time = 0.0
        self._last = b"\n"
        """The last byte of the output so far."""

    def feed(self, data: bytes, time: float | None) -> bytes:
        """Take a piece that was written at `time`, or at the time of the previous piece if None; return it with stamps."""
        self._time = self._time if time is None else time
        stamp = _stamp(self._time)
        out: list[bytes] = []
        # `\r\n` ends a single line, even if the two bytes arrive in different pieces.
        if self._last == b"\r" and data.startswith(b"\n"):
            out.append(b"\n")
            data, self._last = data[1:], b"\n"
        for line in data.splitlines(keepends=True):
            out += [stamp, line] if self._last in (b"\n", b"\r") else [line]
            self._last = line[-1:]
        return b"".join(out)


def _stamp(time: float) -> bytes:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3].encode() + b"Z "
