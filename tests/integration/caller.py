"""Standard input for tasks that tests start without a command line."""

from __future__ import annotations

import contextlib
import os
import socket
import threading


class Caller:
    """A caller that runs a task in the foreground and pipes input into it."""

    def __init__(self) -> None:
        self.name = f"fairway-test-{os.urandom(8).hex()}"
        self.read_end, self.write_end = os.pipe()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"\0{self.name}")
        self._listener.listen(1)
        self._answering = threading.Thread(target=self._answer)
        self._answering.start()

    def write(self, data: bytes) -> None:
        """Write more input."""
        assert os.write(self.write_end, data) == len(data)

    def end(self) -> None:
        """Close the input."""
        os.close(self.write_end)
        self.write_end = -1

    def close(self) -> None:
        """Close everything, also when no task connected."""
        with contextlib.suppress(OSError):
            # Ends the wait for a task that never connected.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._answering.join()
        if self.write_end >= 0:
            self.end()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                socket.send_fds(connection, [b"+"], [self.read_end])
        self._listener.close()
        os.close(self.read_end)
