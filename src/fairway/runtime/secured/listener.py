"""A port of a pod, by TLS, for asyncio. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable
from typing import Callable

Met = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Called with each connection whose handshake is over."""

HANDSHAKE = 10.0
"""Seconds that a handshake may take."""
MOST_GREETING = 64
"""Connections within their handshake; for one more the oldest is closed."""
BACKLOG = 100
PAUSE = 0.1
"""Seconds until the next try when no connection can be accepted: there are too many open files."""


class Listener:
    """With a context it takes TLS alone: a connection without is closed, and nothing of it is read as a request."""

    def __init__(self, context: ssl.SSLContext | None, met: Met, limit: int) -> None:
        """`limit`: bytes that a reader keeps before they are looked at."""
        self._context = context
        self._met = met
        self._limit = limit
        self._accepting: asyncio.Task[None] | None = None
        self._greeting: dict[asyncio.Task[None], socket.socket] = {}

    async def open(self, port: int) -> int:
        """Listen; returns the port."""
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        listening = socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=BACKLOG)
        listening.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening))
        # Not before the loop has let go of it.
        self._accepting.add_done_callback(lambda _task: listening.close())
        found: int = listening.getsockname()[1]
        return found

    def close(self) -> None:
        """Accept nothing more. Connections that are open go on."""
        if self._accepting is not None:
            self._accepting.cancel()
        for connection in self._greeting.values():
            _cut(connection)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(PAUSE)
                continue
            connection.setblocking(False)
            task = loop.create_task(self._begin(connection))
            self._greeting[task] = connection
            task.add_done_callback(lambda done: self._greeting.pop(done, None))
            if len(self._greeting) > MOST_GREETING:
                _cut(self._greeting.pop(next(iter(self._greeting))))

    async def _begin(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            reader = asyncio.StreamReader(limit=self._limit, loop=loop)
            return asyncio.StreamReaderProtocol(reader, self._met, loop=loop)

        try:
            limit = HANDSHAKE if self._context is not None else None
            await loop.connect_accepted_socket(protocol, connection, ssl=self._context, ssl_handshake_timeout=limit)
        except OSError:  # No handshake, or none that succeeded.
            connection.close()


def _cut(connection: socket.socket) -> None:
    """End a handshake. Who waits for it closes the connection."""
    with contextlib.suppress(OSError):  # The other side was first.
        connection.shutdown(socket.SHUT_RDWR)
