"""Accepts connections at the listening socket of a router, with TLS or without.

Without TLS the event loop does it. With TLS each connection is accepted here, to limit the number of unfinished handshakes and
to give each connection the certificate that is in force when it arrives.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from fairway.serving.router.access.tls_file import PortTlsFiles
from fairway.state.serving.route import RoutePlan

log = logging.getLogger("fairway.router")

HANDSHAKE_SECONDS = 10.0
"""Timeout from the connection to the first byte, and from that to the end of the handshake."""
MOST_HANDSHAKES = 256
"""Limit on connections with an unfinished handshake; one more closes the oldest."""
_BACKLOG = 4096
_AT_ONCE = 64
"""Connections accepted in one iteration of the loop."""
_PAUSE_SECONDS = 0.2
"""How long no connection is accepted after descriptors ran out."""
_CLIENT_HELLO = b"\x16"
"""The first byte of a TLS connection."""
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ConnectionAcceptor:
    """One listening socket."""

    def __init__(self, listener: socket.socket, connection: Callable[[], asyncio.BaseProtocol]) -> None:
        self._listener = listener
        self._connection = connection
        self._server: asyncio.Server | None = None
        self._secured = False
        self._reads = False
        self._closed = False
        self._pending: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections that have sent nothing, or have not finished their handshake, the oldest first."""
        self._shaking: set[socket.socket] = set()
        """Pending connections that have begun their handshake."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._switching: asyncio.Task[None] | None = None
        self.files = PortTlsFiles()

    @property
    def pending(self) -> int:
        """Connections that were not handed to the router yet."""
        return len(self._pending)

    async def start(self) -> None:
        """Start to accept connections."""
        await self._switch()

    def follow(self, plan: RoutePlan) -> None:
        """Accept new connections as the plan requires."""
        rule = plan.access.tls if plan.access is not None else None
        self.files.follow(rule)
        if self.files.problem:
            log.warning("%s: new connections cannot be secured: %s", plan.service, self.files.problem)
        if (rule is not None) != self._secured:
            self._secured = rule is not None
            if self._server is not None or self._reads:
                self._switching = asyncio.get_running_loop().create_task(self._switch())

    def close(self) -> None:
        """Accept no more connections; handshakes that have begun continue."""
        self._closed = True
        self._pause()
        if self._server is not None:
            self._server.close()
            self._server = None
        self._listener.close()

    async def _switch(self) -> None:
        if self._closed:
            return
        if self._secured:
            if self._server is not None:
                self._server.close()
                self._server = None
            self._resume()
            return
        self._pause()
        # The loop closes the socket that it gets; the listener itself is needed again.
        server = await asyncio.get_running_loop().create_server(self._connection, sock=self._listener.dup(), backlog=_BACKLOG)
        if self._is_over():
            server.close()
        else:
            self._server = server

    def _is_over(self) -> bool:
        """Return whether the switch is obsolete: a plan, or the end, may come while it is awaited."""
        return self._closed or self._secured

    def _resume(self) -> None:
        if not self._reads and not self._closed and self._secured:
            self._listener.setblocking(False)
            self._reads = True
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._take)

    def _pause(self) -> None:
        if self._reads:
            self._reads = False
            asyncio.get_running_loop().remove_reader(self._listener.fileno())

    def _take(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                taken, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno not in _FULL:
                    raise
                self._pause()
                asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._resume)
                return
            self._greet(taken)

    def _greet(self, taken: socket.socket) -> None:
        """Wait for the first byte, which shows whether the client uses TLS."""
        loop = asyncio.get_running_loop()
        taken.setblocking(False)
        if taken.family in (socket.AF_INET, socket.AF_INET6):
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._pending) >= MOST_HANDSHAKES:
            self._give_up(next(iter(self._pending)))
        self._pending[taken] = loop.call_later(HANDSHAKE_SECONDS, self._give_up, taken)
        loop.add_reader(taken.fileno(), self._look, taken)

    def _look(self, taken: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            first = taken.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        loop.remove_reader(taken.fileno())
        context = self.files.context if first == _CLIENT_HELLO else None
        if not first or (first == _CLIENT_HELLO and context is None):
            # Without a certificate there is no TLS, and never plain HTTP in its place.
            self._forget(taken)
            taken.close()
            return
        self._shaking.add(taken)
        task = loop.create_task(self._hand_on(taken, context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hand_on(self, taken: socket.socket, context: ssl.SSLContext | None) -> None:
        """Hand the connection to the router, after the handshake. A plain HTTP client gets the answer that TLS is required."""
        loop = asyncio.get_running_loop()
        within = HANDSHAKE_SECONDS if context is not None else None
        try:
            await loop.connect_accepted_socket(self._connection, taken, ssl=context, ssl_handshake_timeout=within)
        except (TimeoutError, OSError) as problem:
            log.debug("a handshake failed: %s", problem)
            taken.close()
        finally:
            self._forget(taken)

    def _forget(self, taken: socket.socket) -> None:
        self._shaking.discard(taken)
        timer = self._pending.pop(taken, None)
        if timer is not None:
            timer.cancel()

    def _give_up(self, taken: socket.socket) -> None:
        """Close a connection that was not handed to the router yet."""
        shaking = taken in self._shaking
        self._forget(taken)
        if not shaking:
            asyncio.get_running_loop().remove_reader(taken.fileno())
            taken.close()
            return
        try:
            # A handshake that has begun notices the end of the connection.
            taken.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
