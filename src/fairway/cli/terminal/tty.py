"""The caller's terminal: keys, size and signals."""

from __future__ import annotations

import os
import signal
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType

DROPPED = b"\x1a\x1c"
"""Ctrl-Z and Ctrl-\\ would end or freeze the task on the remote terminal; only a shell started with -it gets them."""


class KeyboardInput:
    """Context in which keys arrive at once and without echo: the remote terminal echoes them. `raw` also passes Ctrl-C."""

    def __init__(self, *, raw: bool) -> None:
        self.raw = raw
        self.descriptor = sys.stdin.fileno()
        self._before = termios.tcgetattr(self.descriptor)

    def __enter__(self) -> KeyboardInput:
        self.take()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.give_back()

    def take(self) -> None:
        """Change the terminal's mode."""
        mode = termios.tcgetattr(self.descriptor)
        mode[0] &= ~(termios.ICRNL | termios.IXON)
        mode[3] &= ~(termios.ICANON | termios.ECHO | (termios.ISIG if self.raw else 0))
        characters = mode[6]
        characters[termios.VMIN], characters[termios.VTIME] = 1, 0
        if not self.raw:
            off = bytes([os.fpathconf(self.descriptor, "PC_VDISABLE")])
            characters[termios.VSUSP] = characters[termios.VQUIT] = off
        if self.raw:
            mode[1] &= ~termios.OPOST
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, mode)

    def give_back(self) -> None:
        """Restore the previous mode."""
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self._before)

    def read(self) -> bytes | None:
        """Return the typed bytes; None when the terminal was closed. In this mode Ctrl-D is an ordinary byte."""
        try:
            data = os.read(self.descriptor, 4096)
        except OSError:
            return None
        if not data:
            return None
        return data if self.raw else bytes(byte for byte in data if byte not in DROPPED)


class SignalPipe:
    """Signals as bytes on a descriptor, so that a single `poll` waits for them and for other events."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._before: dict[int, object] = {}

    def __enter__(self) -> SignalPipe:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self._numbers:
            self._before[number] = signal.signal(number, _note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """The readable descriptor, for `poll`."""
        return self._read

    def take(self) -> list[int]:
        """Return the signals that arrived since the last call."""
        try:
            return list(os.read(self._read, 512))
        except BlockingIOError:
            return []


def _note(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wake-up descriptor carries the number."""


def size() -> tuple[int, int]:
    """Return rows and columns."""
    try:
        terminal_size = os.get_terminal_size(1)
    except OSError:
        return 24, 80
    return terminal_size.lines, terminal_size.columns
