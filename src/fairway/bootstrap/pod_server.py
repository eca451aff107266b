"""The operator's server for pods: TLS and, for pods of an earlier version, plain HTTP on the same port.

A TLS connection begins with the byte 22, which no HTTP request does: the first byte of a connection decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Coroutine

from starlette.types import ASGIApp

from fairway.bootstrap.server import EmbeddedServer, config
from fairway.engines.kubernetes.certificate_authority import CertificateAuthority

log = logging.getLogger("fairway.operator")

BACKLOG = 512
TLS = b"\x16"
"""The first byte of a TLS handshake."""
GREETING = 10.0
"""Timeout for the first byte of a connection, and for the handshake, in seconds."""
MOST_SILENT = 1024
"""Maximum number of connections that have not sent anything yet; others wait to be accepted."""
RENEW_EVERY = 3600.0
PAUSE = 0.1
"""Seconds until the next attempt if no connection can be accepted because too many files are open."""


class PodServer:
    """Serves pods. Without an authority it uses plain HTTP only."""

    def __init__(self, app: ASGIApp, port: int, authority: CertificateAuthority | None) -> None:
        self._server = EmbeddedServer(config(app))
        self._port = port
        self._authority = authority
        self._listening: socket.socket | None = None
        self._silent = asyncio.Semaphore(MOST_SILENT)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port on which it listens, once it is open."""
        number: int = self._listening.getsockname()[1] if self._listening is not None else 0
        return number

    async def open(self) -> None:
        """Start serving."""
        # Pods on other nodes connect to it.
        listener = self._listening = socket.create_server(("", self._port), backlog=BACKLOG)
        listener.setblocking(False)
        if self._authority is None:
            await self._server.open(listener)
            return
        await self._server.open_without_listening()
        self._start(self._accept(listener))
        self._start(self._renew(self._authority))

    async def close(self) -> None:
        """Stop, after requests in progress have finished."""
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
        """Pass the connection to the server, with TLS if the client uses it."""
        assert self._authority is not None
        try:
            async with asyncio.timeout(GREETING):
                await _readable(connection)
            tls = self._authority.context if connection.recv(1, socket.MSG_PEEK) == TLS else None
            limit = GREETING if tls is not None else None
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(self._server.protocol, connection, ssl=tls, ssl_handshake_timeout=limit)
        except OSError as error:
            # Also on a failed handshake and on a timeout.
            log.debug("a connection of a pod could not be set up: %s", error)
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            self._silent.release()

    async def _renew(self, authority: CertificateAuthority) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY)
            with contextlib.suppress(OSError):  # Retried, weeks before the certificate expires.
                if authority.renew():
                    log.info("the certificate shown to pods was renewed")


async def _readable(connection: socket.socket) -> None:
    """Wait until there is something to read, without reading it."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: None if readable.done() else readable.set_result(None))
    try:
        await readable
    finally:
        loop.remove_reader(connection)
