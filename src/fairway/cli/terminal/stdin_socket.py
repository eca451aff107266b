"""Passing of the caller's standard input to the task: the same pipe or file, by its descriptor, not a copy.

No data passes through this process: the writer blocks while the task does not read, gets SIGPIPE when the task is
gone, and a file keeps its offset. Input that the task never fetches remains for the next reader.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group of the peer, as reported by the kernel."""


class StdinSocket:
    """A socket that passes standard input to the first peer of the same user, once, and then closes."""

    def __init__(self) -> None:
        self.name = f"fairway-stdin-{os.urandom(16).hex()}"
        """An abstract address: it needs no file and disappears with this process."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{self.name}")
        # All users can see the address: a long backlog keeps connections of other users from blocking the task.
        self._listener.listen(128)

    @property
    def is_open(self) -> bool:
        """Whether standard input has not been passed on yet."""
        return self._listener.fileno() >= 0

    def fileno(self) -> int:
        """The listening descriptor, for `poll`: readable when a peer has connected."""
        return self._listener.fileno()

    def answer(self) -> None:
        """Pass standard input to the connected peer and drop it here, so that the writer notices when the task has ended."""
        connection, _ = self._listener.accept()
        with connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
                return
            try:
                socket.send_fds(connection, [b"+"], [0])
            except OSError:
                # The peer hung up while it waited; the next peer may have it.
                return
        self.close()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


def open_door() -> StdinSocket | None:
    """Return a door to standard input; None if no data can come from it: closed, a terminal, or the null device."""
    try:
        if os.isatty(0) or fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            return None
        if os.fstat(0).st_rdev == os.stat(os.devnull).st_rdev:
            return None
    except OSError:
        return None
    return StdinSocket()
