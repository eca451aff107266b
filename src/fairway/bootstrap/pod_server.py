"""Where pods reach the operator: TLS and, for pods of an earlier version, plain HTTP at the same port.

A TLS connection begins with the byte 22, and no request of HTTP does: the first byte of a connection decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Coroutine

from starlette.types import ASGIApp

from fairway.bootstrap.servers import SecondServer, config
from fairway.engines.kubernetes.authority import Authority

log = logging.getLogger("fairway.operator")

BACKLOG = 512
TLS = b"\x16"
"""The first byte of a handshake."""
GREETING = 10.0
"""Seconds until the first byte of a connection, and for the handshake."""
MOST_SILENT = 1024
"""Connections that have said nothing yet, at the most; others wait to be accepted."""
RENEW_EVERY = 3600.0
PAUSE = 0.1
"""Seconds until the next try when no connection can be accepted: there are too many open files."""


class PodServer:
    """Answers pods. Without an authority all is plain HTTP."""

    def __init__(self, app: ASGIApp, port: int, authority: Authority | None) -> None:
        self._server = SecondServer(config(app))
        self._port = port
        self._authority = authority
        self._listening: socket.socket | None = None
        self._silent = asyncio.Semaphore(MOST_SILENT)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Where it listens, once it is open."""
        found: int = self._listening.getsockname()[1] if self._listening is not None else 0
        return found

    async def open(self) -> None:
        """Begin to answer."""
        # Pods of other nodes come here.
        listening = self._listening = socket.create_server(("", self._port), backlog=BACKLOG)
        listening.setblocking(False)
        if self._authority is None:
            await self._server.open(listening)
            return
        await self._server.open_without_listening()
        self._start(self._accept(listening))
        self._start(self._renew(self._authority))

    async def close(self) -> None:
        """Finish what is being answered."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listening is not None:
            await self._server.close(self._listening)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._silent.acquire()
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                self._silent.release()
                log.warning("no connection of a pod could be accepted: %s", error)
                await asyncio.sleep(PAUSE)
                continue
            connection.setblocking(False)
            self._start(self._begin(connection))

    async def _begin(self, connection: socket.socket) -> None:
        """Hand the connection to the server, decrypted where it is encrypted."""
        assert self._authority is not None
        try:
            async with asyncio.timeout(GREETING):
                await _readable(connection)
            tls = self._authority.context if connection.recv(1, socket.MSG_PEEK) == TLS else None
            limit = GREETING if tls is not None else None
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(self._server.protocol, connection, ssl=tls, ssl_handshake_timeout=limit)
        except OSError as error:
            # Also a handshake that failed, and silence.
            log.debug("a connection of a pod ended before it began: %s", error)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            self._silent.release()

    async def _renew(self, authority: Authority) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY)
            with contextlib.suppress(OSError):  # Tried again, weeks before it matters.
                if authority.renew():
                    log.info("the certificate that pods see was renewed")


async def _readable(connection: socket.socket) -> None:
    """Wait until there is something to read, and leave it there."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: None if came.done() else came.set_result(None))
    try:
        await came
    finally:
        loop.remove_reader(connection)
