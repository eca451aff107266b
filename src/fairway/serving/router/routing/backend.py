"""A backend as the router sees it: its connections, its requests in flight, and whether it accepts connections."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from fairway.serving.router.counter import BackendCounters, RevisionCounters
from fairway.serving.router.http1_backend import BackendChannel, Http1BackendConnection
from fairway.serving.router.http2.connection_pool import Http2ConnectionPool
from fairway.state.serving.route import RouteBackend

IDLE_LIMIT = 256
"""Limit on idle connections kept for one backend."""
IDLE_SECONDS = 4.0
"""How long they are kept. Servers close idle connections after five seconds or more, and no request should run into that."""
CONNECT_SECONDS = 5.0
PROBE_SECONDS = 0.2
"""Seconds after a refused connection until one request tries the backend again."""


MULTIPLEXED = frozenset({"http2", "grpc"})
"""Protocols that backends use over HTTP/2 connections."""


class ConnectionReceiver(Protocol):
    """Receives a connection that it requested."""

    def on_connected(self, upstream: BackendChannel) -> None:
        """Take the connection."""
        ...

    def on_refused(self, problem: Exception) -> None:
        """Handle a failure to connect."""
        ...


class RoutedBackend:
    """One backend and its connections."""

    __slots__ = ("_address", "_idle", "_pool", "_tasks", "backend", "count", "gone", "probed", "revision", "suspect_until")

    def __init__(self, backend: RouteBackend, count: BackendCounters, revision: RevisionCounters) -> None:
        self.backend = backend
        self.count = count
        self.revision = revision
        self.gone = False
        """The backend is no longer in the plan; it finishes its requests in flight."""
        self.suspect_until = 0.0
        """After a refused connection: when to try again; 0 while the backend accepts connections."""
        self.probed = False
        """Whether a request is trying the suspect backend now."""
        self._idle: deque[Http1BackendConnection] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        host, _, port = backend.address.rpartition(":")
        self._address = (host.strip("[]"), int(port))
        self._pool = Http2ConnectionPool(*self._address) if backend.protocol in MULTIPLEXED else None

    def is_open(self, now: float) -> bool:
        """Return whether a request may be sent to the backend."""
        return not self.suspect_until or (self.suspect_until <= now and not self.probed)

    def take_idle(self, now: float) -> BackendChannel | None:
        """Return an open, recently used connection or a stream of one; None if there is none."""
        if self._pool is not None and self.backend.protocol:
            return self._pool.take(now)
        idle = self._idle
        while idle:
            upstream = idle.pop()
            if now - upstream.idle_since <= IDLE_SECONDS and upstream.is_quiet():
                return upstream
            if not upstream.lost:
                upstream.close()
        return None

    def give_back(self, upstream: BackendChannel, now: float) -> None:
        """Keep a connection after its response if another request may follow on it; close it otherwise."""
        if not isinstance(upstream, Http1BackendConnection):
            upstream.close()
            return
        if not upstream.is_reusable or self.gone or len(self._idle) >= IDLE_LIMIT:
            if not upstream.lost:
                upstream.close()
            return
        upstream.reused = True
        upstream.idle_since = now
        self._idle.append(upstream)

    def open_stream(self, visitor: ConnectionReceiver, now: float) -> None:
        """Open an HTTP/2 stream to one of Fairway's own replicas, which otherwise serves HTTP/1.1."""
        if self._pool is None:
            self._pool = Http2ConnectionPool(*self._address)
        stream = self._pool.take(now)
        if stream is None:
            self.connect(visitor, multiplexed=True)
        else:
            visitor.on_connected(stream)

    def connect(self, visitor: ConnectionReceiver, *, multiplexed: bool = False) -> None:
        """Open a connection and pass the result to the visitor."""
        if self.suspect_until:
            self.probed = True
        multiplexed = multiplexed or self.backend.protocol in MULTIPLEXED
        task = asyncio.get_running_loop().create_task(self._connect(visitor, multiplexed=multiplexed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def sweep(self, now: float) -> None:
        """Close connections that have been idle too long."""
        if self._pool is not None:
            self._pool.sweep(now)
        while self._idle and (self._idle[0].lost or now - self._idle[0].idle_since > IDLE_SECONDS):
            upstream = self._idle.popleft()
            if not upstream.lost:
                upstream.close()

    def leave(self) -> None:
        """Mark the backend as removed from the plan and close its idle connections."""
        self.gone = True
        if self._pool is not None:
            self._pool.leave()
        while self._idle:
            upstream = self._idle.pop()
            if not upstream.lost:
                upstream.close()

    async def _connect(self, visitor: ConnectionReceiver, *, multiplexed: bool) -> None:
        loop = asyncio.get_running_loop()
        host, port = self._address
        upstream: BackendChannel
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if multiplexed:
                    assert self._pool is not None
                    upstream = await self._pool.connect()
                else:
                    _, upstream = await loop.create_connection(Http1BackendConnection, host, port)
            if upstream.lost:
                # The backend closed the connection, or sent bytes, before a request was sent.
                raise ConnectionResetError
        except OSError as problem:  # refused, unreachable, or too slow: TimeoutError is an OSError too
            self.probed = False
            self.suspect_until = time.monotonic() + PROBE_SECONDS
            self.count.refused += 1
            visitor.on_refused(problem)
            return
        self.probed = False
        self.suspect_until = 0.0
        visitor.on_connected(upstream)
