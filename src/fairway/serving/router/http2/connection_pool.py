"""The HTTP/2 connections to one backend: few, and each carries many requests."""

from __future__ import annotations

import asyncio

from fairway.serving.router.http2.backend_connection import Http2BackendConnection, Http2BackendStream

_IDLE_SECONDS = 60.0
_MOST = 32
"""Limit on connections to one backend."""


class Http2ConnectionPool:
    """Opens a connection when none has room."""

    __slots__ = ("_address", "_dialing", "_gone", "_uplinks")

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._uplinks: list[Http2BackendConnection] = []
        self._dialing: asyncio.Task[None] | None = None
        self._gone = False

    def take(self, now: float) -> Http2BackendStream | None:
        """Return a stream of a connection that has room; None if there is none."""
        for uplink in self._uplinks:
            if uplink.has_room:
                return Http2BackendStream(uplink)
        return None

    async def connect(self) -> Http2BackendStream:
        """Return a stream of a new connection, or of one that another request has just opened; raise `OSError` on failure."""
        while True:
            for uplink in self._uplinks:
                if uplink.has_room:
                    return Http2BackendStream(uplink)
            if len(self._uplinks) >= _MOST:
                message = "the replica has reached its limit of concurrent requests"
                raise ConnectionRefusedError(message)
            if self._dialing is None:
                self._dialing = asyncio.get_running_loop().create_task(self._dial())
                # Retrieve the exception, in case every waiter has left.
                self._dialing.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.shield(self._dialing)

    async def _dial(self) -> None:
        try:
            _, uplink = await asyncio.get_running_loop().create_connection(Http2BackendConnection, *self._address)
        finally:
            self._dialing = None
        self._uplinks = [other for other in self._uplinks if not other.lost]
        self._uplinks.append(uplink)
        if self._gone:
            uplink.leave()

    def sweep(self, now: float) -> None:
        """Close connections that have been idle too long."""
        self._uplinks = [other for other in self._uplinks if not other.lost]
        for uplink in self._uplinks:
            if not uplink.streams and uplink.idle_since and now - uplink.idle_since > _IDLE_SECONDS:
                uplink.leave()

    def leave(self) -> None:
        """Close the connections after their last requests: the backend was removed from the plan."""
        self._gone = True
        for uplink in self._uplinks:
            uplink.leave()
