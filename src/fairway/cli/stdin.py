"""The caller's standard input, handed to the task that will read it: the very same pipe or file, not a copy of it.

So nothing passes through us: the writer waits while the task does not read, hears when it has gone, and
a file keeps its place. What the task never asks for is left to whoever reads it next.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group of the other side, as the kernel tells them."""


class Door:
    """Hands out standard input to the first who asks, once; whoever comes later finds nobody there."""

    def __init__(self) -> None:
        self.name = f"fairway-stdin-{os.urandom(16).hex()}"
        """An abstract address: it needs no file, and is gone with this process."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{self.name}")
        # The address can be seen by all users: those who connect and may not must not keep the task out.
        self._listener.listen(128)

    @property
    def is_open(self) -> bool:
        """Whether it was not asked for yet."""
        return self._listener.fileno() >= 0

    def fileno(self) -> int:
        """For `poll`: somebody knocks."""
        return self._listener.fileno()

    def answer(self) -> None:
        """Give it to whoever knocked, and keep none: with the task's end its writer must hear that nobody reads."""
        connection, _ = self._listener.accept()
        with connection:
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(told)[1] != os.getuid():
                return
            try:
                socket.send_fds(connection, [b"+"], [0])
            except OSError:
                # It hung up while it waited; the next one may have it.
                return
        self.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def close(self) -> None:
        """Answer nobody any more."""
        self._listener.close()


def open_door() -> Door | None:
    """A door to our standard input; None where nothing can come from it: closed, a terminal, or the null device."""
    try:
        if os.isatty(0) or fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            return None
        if os.fstat(0).st_rdev == os.stat(os.devnull).st_rdev:
            return None
    except OSError:
        return None
    return Door()
