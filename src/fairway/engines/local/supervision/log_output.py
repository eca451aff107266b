"""The logs of a task as its supervisor handles them: plain files to which the processes append directly.

The supervisor only records how long they were at which time (`out-N.index`, lines of `offset time`), and frees the blocks of old
parts beyond a limit. Standard library only.
"""

from __future__ import annotations

import os
import struct

from fairway.engines.local.supervision.process import kernel_call
from fairway.engines.local.supervision.reactor import READ, Reactor

_BLOCK = 4096
_PIECE = 64 * 1024
MARKS = ".err"
"""Suffix of the file that tells which bytes of a log are standard error."""
PENDING = struct.Struct("<q")
"""Its header: -1, or the length of the log before an append of standard error whose span is not recorded yet."""
SPAN = struct.Struct("<qq")
"""Its entries: start and end of each span of standard error, rising."""
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def log_path(folder: str, rank: int) -> str:
    """Return the path of a process's log."""
    return os.path.join(folder, f"out-{rank}.log")


class ProcessLog:
    """The log of one process."""

    def __init__(self, folder: str, rank: int, cap: int) -> None:
        self.path = log_path(folder, rank)
        self.descriptor = os.open(self.path, _OPEN, 0o600)
        self._index_path = os.path.join(folder, f"out-{rank}.index")
        self._index = -1
        self._size = 0
        self._cap = cap
        self._released = 0

    def note(self) -> bool:
        """Add the growth since the last call to the index; return whether there was any."""
        state = os.fstat(self.descriptor)
        if state.st_size == self._size:
            return False
        grown = state.st_size > self._size
        self._size = state.st_size
        if grown:
            # The file's modification time is when its last byte came, however late this call is.
            self._write_index(f"{state.st_size} {state.st_mtime:.3f}\n".encode())
        else:
            # The program truncated its own log; offsets start again.
            self._released = 0
        self._release()
        return grown

    def write(self, data: bytes) -> None:
        """Append for a process that cannot do so itself. A full disk loses output, never the task."""
        try:
            os.write(self.descriptor, data)
        except OSError:
            return

    def end(self, length: int) -> bytes:
        """Return the last bytes."""
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - length))
            return file.read(length)

    def size(self) -> int:
        """Return the number of bytes written so far."""
        return os.fstat(self.descriptor).st_size

    def discard_if_empty(self) -> None:
        """Remove the file of a process that was never started."""
        if self.size() == 0:
            os.unlink(self.path)

    def _write_index(self, line: bytes) -> None:
        try:
            if self._index < 0:
                self._index = os.open(self._index_path, _OPEN, 0o600)
            os.write(self._index, line)
        except OSError:
            # The disk is full: the next entry covers these bytes, too.
            return

    def _release(self) -> None:
        if not self._cap or self._size - self._released <= self._cap:
            return
        # Half of the limit is freed at a time, so that this is rare.
        upto = (self._size - self._cap // 2) // _BLOCK * _BLOCK
        if upto > self._released and kernel_call.punch_hole(self.descriptor, self._released, upto - self._released):
            self._released = upto
        else:
            self._cap = 0


class StderrPipe:
    """Separate standard error of a process: a pipe whose bytes the supervisor appends to the log.

    Standard output goes to the log directly. `out-N.err` records which bytes came from the pipe. Its header is set before the
    append and cleared after the entry is written, so that a reader knows up to where the entries are complete.
    """

    def __init__(self, reactor: Reactor, path: str) -> None:
        self._reactor = reactor
        self._read, self.descriptor = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read, False)
        self._marks_path = os.path.splitext(path)[0] + MARKS
        self._marks = os.open(self._marks_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.pwrite(self._marks, PENDING.pack(-1), 0)
        # A descriptor of its own: its position is where the last append through it ended.
        self._log = os.open(path, _OPEN, 0o600)
        self._entry = PENDING.size - SPAN.size
        """Position of the last entry."""
        self._span = (-1, -1)

    def started(self) -> None:
        """Close our copy of the write end, so that the end of the process closes the pipe."""
        os.close(self.descriptor)
        self._reactor.watch(self._read, READ, self._readable)

    def discard(self) -> None:
        """Remove the file of a process that was never started."""
        os.unlink(self._marks_path)

    def drain(self) -> None:
        """Append what was written before the end."""
        while self._read >= 0 and self._take():
            pass

    def _readable(self, _events: int) -> None:
        self._take()

    def _take(self) -> bool:
        try:
            data = os.read(self._read, _PIECE)
        except BlockingIOError:
            return False
        if data:
            self._append(data)
            return True
        self._reactor.forget(self._read)
        os.close(self._read)
        self._read = -1
        return False

    def _append(self, data: bytes) -> None:
        try:
            os.pwrite(self._marks, PENDING.pack(os.fstat(self._log).st_size), 0)
            while data:
                written = os.write(self._log, data)
                self._note(os.lseek(self._log, 0, os.SEEK_CUR), written)
                data = data[written:]
            os.pwrite(self._marks, PENDING.pack(-1), 0)
        except OSError:
            # A full disk loses output, or its assignment to a stream, never the task.
            return

    def _note(self, end: int, length: int) -> None:
        begin = end - length
        if begin < self._span[1]:
            # The program truncated its own log; offsets start again.
            os.ftruncate(self._marks, PENDING.size)
            self._entry, self._span = PENDING.size - SPAN.size, (-1, -1)
        if begin == self._span[1]:
            begin = self._span[0]
        else:
            self._entry += SPAN.size
        self._span = (begin, end)
        os.pwrite(self._marks, SPAN.pack(begin, end), self._entry)
