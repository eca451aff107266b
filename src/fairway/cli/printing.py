"""How the output of tasks is printed: one task as it is, several with their names before each line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_COLOURS = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)
_LONGEST = 65536
"""A line longer than this is printed in parts."""
PATIENCE = 0.3
"""After so many seconds without an end of line, what a task has printed is shown as it is: it may be a question."""


class Plain:
    """The output of the only task, byte for byte."""

    def __init__(self, emit: Callable[[bytes], None]) -> None:
        self._emit = emit

    def add(self, task: str, data: bytes, now: float) -> None:
        """Print at once."""
        del task, now
        self._emit(data)

    def tick(self, now: float) -> None:
        """Nothing is ever held back."""

    def close(self) -> None:
        """Nothing is ever held back."""


class Prefixed:
    """The output of several tasks, line by line, each with its task's name; lines of different tasks never mix."""

    def __init__(self, emit: Callable[[bytes], None], *, colour: bool = False, width: int = 0) -> None:
        self._emit = emit
        self._colour = colour
        self._width = width
        self._held: dict[str, bytes] = {}
        self._since: dict[str, float] = {}
        self._open = ""
        """The task whose unfinished line stands on the screen."""
        self._numbers: dict[str, int] = {}

    def add(self, task: str, data: bytes, now: float) -> None:
        """Print the lines that are whole; hold back the rest."""
        *lines, rest = (self._held.pop(task, b"") + data).split(b"\n")
        printed = b"".join(self._begin(task) + self._end(line) for line in lines)
        if len(rest) > _LONGEST:
            printed += self._begin(task) + rest
            self._open = task
        elif rest:
            self._held[task] = rest
            self._since.setdefault(task, now)
        if lines:
            self._since[task] = now
        if printed:
            self._emit(printed)

    def tick(self, now: float) -> None:
        """Show what was held back for long, unless it is a progress bar that paints over itself."""
        for task, rest in list(self._held.items()):
            if now - self._since[task] >= PATIENCE and b"\r" not in rest.rstrip(b"\r"):
                del self._held[task]
                self._emit(self._begin(task) + rest)
                self._open = task

    def close(self) -> None:
        """Print what is left of unfinished lines."""
        for task, rest in self._held.items():
            self._emit(self._begin(task) + self._end(rest))
        self._held.clear()

    def _begin(self, task: str) -> bytes:
        if self._open == task:
            self._open = ""
            return b""
        break_first = b"\n" if self._open else b""
        self._open = ""
        self._width = max(self._width, len(task))
        prefix = f"{task:{self._width}} | "
        if self._colour:
            number = self._numbers.setdefault(task, len(self._numbers))
            prefix = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{prefix}\x1b[0m"
        return break_first + prefix.encode()

    @staticmethod
    def _end(line: bytes) -> bytes:
        """The line as a terminal would show it at last: what was painted over is left out."""
        return line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n"
