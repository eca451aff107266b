"""A backend as the router sees it: its connections, what it has under way, and whether it answers at all."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from fairway.serving.router.counting import BackendCount, RevisionCount
from fairway.serving.router.uplinks.pool import Pool
from fairway.serving.router.upstream import Channel, Upstream
from fairway.state.route import Backend

IDLE_LIMIT = 256
"""Connections that are kept for later, a backend."""
IDLE_SECONDS = 4.0
"""How long; servers close idle connections after five seconds and more, and a request should not meet that."""
CONNECT_SECONDS = 5.0
PROBE_SECONDS = 0.2
"""How long a backend that refused a connection is left alone before one request tries it again."""


MULTIPLEXED = frozenset({"http2", "grpc"})
"""Protocols of backends that are spoken over connections of HTTP/2."""


class Visitor(Protocol):
    """Who wants a connection."""

    def on_connected(self, upstream: Channel) -> None:
        """Here it is."""
        ...

    def on_refused(self, problem: Exception) -> None:
        """There is none to be had."""
        ...


class Place:
    """One backend."""

    __slots__ = ("_address", "_idle", "_pool", "_tasks", "backend", "count", "gone", "probed", "revision", "suspect_until")

    def __init__(self, backend: Backend, count: BackendCount, revision: RevisionCount) -> None:
        self.backend = backend
        self.count = count
        self.revision = revision
        self.gone = False
        """No longer in the plan: it finishes what it has."""
        self.suspect_until = 0.0
        """After a refused connection: when to try again; 0 when all is well."""
        self.probed = False
        """A request is trying it now."""
        self._idle: deque[Upstream] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        host, _, port = backend.address.rpartition(":")
        self._address = (host.strip("[]"), int(port))
        self._pool = Pool(*self._address) if backend.protocol in MULTIPLEXED else None

    def is_open(self, now: float) -> bool:
        """Whether a request may be sent there."""
        return not self.suspect_until or (self.suspect_until <= now and not self.probed)

    def take_idle(self, now: float) -> Channel | None:
        """A connection that is open and was used not long ago, or a stream of one."""
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

    def give_back(self, upstream: Channel, now: float) -> None:
        """Keep a connection whose answer has ended, when the next request may follow on it."""
        if not isinstance(upstream, Upstream):
            upstream.close()
            return
        if not upstream.is_reusable or self.gone or len(self._idle) >= IDLE_LIMIT:
            if not upstream.lost:
                upstream.close()
            return
        upstream.reused = True
        upstream.idle_since = now
        self._idle.append(upstream)

    def open_stream(self, visitor: Visitor, now: float) -> None:
        """A stream to a replica of ours, which answers requests over HTTP/1.1 otherwise."""
        if self._pool is None:
            self._pool = Pool(*self._address)
        stream = self._pool.take(now)
        if stream is None:
            self.connect(visitor, multiplexed=True)
        else:
            visitor.on_connected(stream)

    def connect(self, visitor: Visitor, *, multiplexed: bool = False) -> None:
        """Open a connection; the visitor is told."""
        if self.suspect_until:
            self.probed = True
        multiplexed = multiplexed or self.backend.protocol in MULTIPLEXED
        task = asyncio.get_running_loop().create_task(self._connect(visitor, multiplexed=multiplexed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def sweep(self, now: float) -> None:
        """Close connections that were not used for long."""
        if self._pool is not None:
            self._pool.sweep(now)
        while self._idle and (self._idle[0].lost or now - self._idle[0].idle_since > IDLE_SECONDS):
            upstream = self._idle.popleft()
            if not upstream.lost:
                upstream.close()

    def leave(self) -> None:
        """It is gone from the plan."""
        self.gone = True
        if self._pool is not None:
            self._pool.leave()
        while self._idle:
            upstream = self._idle.pop()
            if not upstream.lost:
                upstream.close()

    async def _connect(self, visitor: Visitor, *, multiplexed: bool) -> None:
        loop = asyncio.get_running_loop()
        host, port = self._address
        upstream: Channel
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if multiplexed:
                    assert self._pool is not None
                    upstream = await self._pool.connect()
                else:
                    _, upstream = await loop.create_connection(Upstream, host, port)
            if upstream.lost:
                # It was closed, or the backend sent bytes, before a request was sent.
                raise ConnectionResetError
        except OSError as problem:  # refused, unreachable, or too slow: TimeoutError is one too
            self.probed = False
            self.suspect_until = time.monotonic() + PROBE_SECONDS
            self.count.refused += 1
            visitor.on_refused(problem)
            return
        self.probed = False
        self.suspect_until = 0.0
        visitor.on_connected(upstream)
