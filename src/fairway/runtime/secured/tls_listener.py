"""A TLS port of a pod, for asyncio. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable
from typing import Callable

Met = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Called with each connection after its handshake."""

HANDSHAKE = 10.0
"""Maximum seconds for a handshake."""
MOST_GREETING = 64
"""Maximum number of concurrent handshakes; one more closes the oldest."""
BACKLOG = 100
PAUSE = 0.1
"""Seconds until the next attempt when no connection can be accepted because too many files are open."""


class TlsListener:
    """Accepts connections.

    With a context it accepts only TLS: any other connection is closed, and none of its data is read as a request.
    """

    def __init__(self, context: ssl.SSLContext | None, met: Met, limit: int) -> None:
        """`limit`: maximum bytes that a reader buffers."""
        self._context = context
        self._met = met
        self._limit = limit
        self._accepting: asyncio.Task[None] | None = None
        self._greeting: dict[asyncio.Task[None], socket.socket] = {}

    async def open(self, port: int) -> int:
        """Start to listen, and return the port."""
        dual_stack = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual_stack else socket.AF_INET
        listening = socket.create_server(("", port), family=family, dualstack_ipv6=dual_stack, backlog=BACKLOG)
        listening.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening))
        # Closed only after the event loop has released it.
        self._accepting.add_done_callback(lambda _task: listening.close())
        bound_port: int = listening.getsockname()[1]
        return bound_port

    def close(self) -> None:
        """Stop accepting connections. Open connections are not affected."""
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
        except OSError:  # The handshake failed, or the connection broke.
            connection.close()


def _cut(connection: socket.socket) -> None:
    """Abort a handshake. The task that waits for it closes the connection."""
    with contextlib.suppress(OSError):  # The other side has closed it already.
        connection.shutdown(socket.SHUT_RDWR)
