"""Printers for the output of tasks: a single task unchanged, several with the task's name before each line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_COLOURS = (36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91)
_LONGEST = 65536
"""Length in bytes above which a line is printed in parts."""
PATIENCE = 0.3
"""Seconds after which an unfinished line is printed: it may be a prompt."""


class PlainPrinter:
    """Prints the output of a single task, byte for byte."""

    def __init__(self, emit: Callable[[bytes], None]) -> None:
        self._emit = emit

    def add(self, task: str, data: bytes, now: float) -> None:
        """Print at once."""
        del task, now
        self._emit(data)

    def tick(self, now: float) -> None:
        """Do nothing: no output is held back."""

    def close(self) -> None:
        """Do nothing: no output is held back."""


class PrefixPrinter:
    """Prints the output of several tasks line by line, with the task's name; lines of different tasks never mix."""

    def __init__(self, emit: Callable[[bytes], None], *, colour: bool = False, width: int = 0) -> None:
        self._emit = emit
        self._colour = colour
        self._width = width
        self._held: dict[str, bytes] = {}
        self._since: dict[str, float] = {}
        self._open = ""
        """The task whose unfinished line is on the screen."""
        self._numbers: dict[str, int] = {}

    def add(self, task: str, data: bytes, now: float) -> None:
        """Print complete lines; hold back the rest."""
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
        """Print lines held back for `PATIENCE`, except progress bars, which overwrite themselves."""
        for task, rest in list(self._held.items()):
            if now - self._since[task] >= PATIENCE and b"\r" not in rest.rstrip(b"\r"):
                del self._held[task]
                self._emit(self._begin(task) + rest)
                self._open = task

    def close(self) -> None:
        """Print the unfinished lines."""
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
        """Return the line as a terminal would finally show it, without the parts that were overwritten."""
        return line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n"
