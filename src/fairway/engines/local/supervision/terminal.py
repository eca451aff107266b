"""The terminal through which a user interacts with the first process of a task. Standard library only."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Callable

from fairway.engines.local.supervision.process.process_start import StandardStreams
from fairway.engines.local.supervision.reactor import READ, WRITE, Reactor

_PIECE = 64 * 1024
_MOST_WAITING = 1 << 20
"""Limit of bytes buffered for a program that does not read; more is dropped."""


class TerminalInput:
    """Writes bytes to a process that may not read them at once."""

    def __init__(self, reactor: Reactor, descriptor: int, call: Callable[[int], None]) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        self._call = call
        self._waiting = b""
        os.set_blocking(descriptor, False)
        reactor.watch(descriptor, READ, self._ready)

    def type(self, data: bytes) -> None:
        """Send the data, now or when the process reads."""
        self._waiting = (self._waiting + data)[:_MOST_WAITING]
        self._flush()

    def close(self) -> None:
        """End the input."""
        if self._descriptor >= 0:
            self._reactor.forget(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & ~WRITE:
            self._call(events)

    def _flush(self) -> None:
        if self._descriptor < 0:
            return
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._descriptor, self._waiting) :]
        except BlockingIOError:
            pass
        except OSError:
            # The process closed its end.
            self._waiting = b""
        self._reactor.watch(self._descriptor, READ | (WRITE if self._waiting else 0), self._ready)


class TaskTerminal:
    """A terminal for one process; its output is passed to `show`."""

    def __init__(self, reactor: Reactor, show: Callable[[bytes], None]) -> None:
        self._master, self._slave = os.openpty()
        self._show = show
        self._keyboard = TerminalInput(reactor, self._master, self._readable)
        self._open = True
        self.resize(24, 80)

    @property
    def streams(self) -> StandardStreams:
        """The streams of the process."""
        return StandardStreams(self._slave, self._slave, terminal=True)

    def started(self) -> None:
        """Close our copies, so that the end of the process closes the terminal."""
        os.close(self._slave)

    def type(self, data: bytes) -> None:
        """Pass on what a user typed."""
        self._keyboard.type(data)

    def end_input(self) -> None:
        """Send Ctrl-D."""
        self._keyboard.type(b"\x04")

    def resize(self, rows: int, columns: int) -> None:
        """Set the window size; the process gets SIGWINCH."""
        if self._open:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def drain(self) -> None:
        """Show what was printed before the end."""
        while self._open and self._read():
            pass

    def _readable(self, _events: int) -> None:
        self._read()

    def _read(self) -> bool:
        try:
            data = os.read(self._master, _PIECE)
        except BlockingIOError:
            return False
        except OSError:
            # Linux reports this when the last process with this terminal has ended.
            data = b""
        if data:
            self._show(data)
            return True
        self._open = False
        self._keyboard.close()
        return False
