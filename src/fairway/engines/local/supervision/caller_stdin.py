"""Fetches the standard input of the caller that runs the task in the foreground: its own descriptor. Standard library only."""

from __future__ import annotations

import os
import socket
import struct
import time

from fairway.engines.local.supervision import order

PATIENCE = 3.0
"""Seconds that the caller gets to answer; it may be stopped (Ctrl-Z), and its task must not wait for it."""
_CREDENTIALS = struct.Struct("3i")


def fetch(name: str) -> int | None:
    """Return the caller's standard input, by the name of its socket; None when it is closed or was handed over before.

    Raises `TimeoutError` when the caller does not answer.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return _fetch(name, max(0.1, deadline - time.monotonic()))
        except BlockingIOError:
            # The queue of connections is full: other users can see the address and connect.
            if time.monotonic() > deadline:
                raise TimeoutError from None
            time.sleep(0.005)


def _fetch(name: str, patience: float) -> int | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as door:
        door.settimeout(patience)
        try:
            door.connect(f"\0{name}")
            credentials = door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
                return None
            _mark, descriptors = order.receive_with(door, 1)
        except (TimeoutError, BlockingIOError):
            raise
        except OSError:
            return None
    return descriptors[0] if descriptors else None
