"""HTTP servers of the processes: none ends before everything is closed, and none has periodic wake-ups."""

from __future__ import annotations

import asyncio
import socket
import ssl
from types import FrameType
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from fairway.sdk.transport import http as transport_http
from fairway.version import VERSION

GRACE_FOR_STREAMS = 1
"""Grace period for open log streams when the daemon ends, in seconds."""


class DaemonServer(uvicorn.Server):
    """A server that ends only on a signal: uvicorn's own would raise the signal again, before everything is closed."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish the requests in progress, then return from `serve`."""
        del sig, frame
        self.should_exit = True


class EmbeddedServer(uvicorn.Server):
    """An additional server that ignores signals and has no periodic wake-ups."""

    async def open(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Start serving."""
        self.config.load()
        self.config.ssl = tls
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[listening])

    async def open_without_listening(self) -> None:
        """Start serving connections that are accepted elsewhere, each with its own `protocol`."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[])

    def protocol(self) -> asyncio.Protocol:
        """Return the protocol of one connection."""
        protocol_of_connection: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol_of_connection

    async def close(self, listening: socket.socket) -> None:
        """Stop, after requests in progress have finished."""
        await self.shutdown(sockets=[listening])


def config(app: ASGIApp, http: type[asyncio.Protocol] | Literal["auto"] = "auto") -> uvicorn.Config:
    """Return the configuration of all servers."""
    return uvicorn.Config(
        app,
        http=http,
        loop="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        ws="none",
        timeout_graceful_shutdown=GRACE_FOR_STREAMS,
        # Newer clients detect by this header that the daemon needs a restart.
        headers=[(transport_http.VERSION_HEADER, VERSION)],
    )
