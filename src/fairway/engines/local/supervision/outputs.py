"""The logs of a task, as its supervisor sees them: plain files that the processes append to themselves.

The supervisor only notes how long they were when (`out-N.index`, lines of `offset time`), and gives the
blocks of old parts back when there is too much. Standard library only.
"""

from __future__ import annotations

import os

from fairway.engines.local.supervision import kernel

_BLOCK = 4096
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Output:
    """The log of one process."""

    def __init__(self, folder: str, rank: int, cap: int) -> None:
        self.path = os.path.join(folder, f"out-{rank}.log")
        self.descriptor = os.open(self.path, _OPEN, 0o600)
        self._index_path = os.path.join(folder, f"out-{rank}.index")
        self._index = -1
        self._size = 0
        self._cap = cap
        self._released = 0

    def note(self) -> bool:
        """Add to the index what was written since the last time. Whether there was anything."""
        state = os.fstat(self.descriptor)
        if state.st_size == self._size:
            return False
        grown = state.st_size > self._size
        self._size = state.st_size
        if grown:
            # The file's own time is when its last byte came, however late this look is.
            self._write_index(f"{state.st_size} {state.st_mtime:.3f}\n".encode())
        else:
            # The program emptied its own log; offsets begin again.
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
        """The last bytes."""
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - length))
            return file.read(length)

    def size(self) -> int:
        """Bytes written so far."""
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
            # A full disk: the next entry covers this one's bytes.
            return

    def _release(self) -> None:
        if not self._cap or self._size - self._released <= self._cap:
            return
        # Half of the cap goes at a time, so that this is rare.
        upto = (self._size - self._cap // 2) // _BLOCK * _BLOCK
        if upto > self._released and kernel.punch_hole(self.descriptor, self._released, upto - self._released):
            self._released = upto
        else:
            self._cap = 0
