"""Servers of HTTP, as the processes run them: none ends before everything is closed, and none wakes up by itself."""

from __future__ import annotations

import asyncio
import socket
import ssl
from types import FrameType
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from fairway.sdk import wire
from fairway.version import VERSION

GRACE_FOR_STREAMS = 1
"""Seconds that open log streams get when the daemon ends."""


class DaemonServer(uvicorn.Server):
    """A server that only ends when a signal says so: uvicorn's own would raise it again, before anything is closed."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish what is being answered, then return from `serve`."""
        del sig, frame
        self.should_exit = True


class SecondServer(uvicorn.Server):
    """A server beside the daemon's own: it minds no signals, and nothing in it wakes up by itself."""

    async def open(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Begin to answer."""
        self.config.load()
        self.config.ssl = tls
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[listening])

    async def open_without_listening(self) -> None:
        """Begin to answer at connections that are accepted elsewhere, each by a `protocol` of its own."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[])

    def protocol(self) -> asyncio.Protocol:
        """What answers at one connection."""
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def close(self, listening: socket.socket) -> None:
        """Finish what is being answered."""
        await self.shutdown(sockets=[listening])


def config(app: ASGIApp, http: type[asyncio.Protocol] | Literal["auto"] = "auto") -> uvicorn.Config:
    """How all of them answer."""
    return uvicorn.Config(
        app,
        http=http,
        loop="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        ws="none",
        timeout_graceful_shutdown=GRACE_FOR_STREAMS,
        # Clients that are newer see by it that the daemon is due for a restart.
        headers=[(wire.VERSION_HEADER, VERSION)],
    )
