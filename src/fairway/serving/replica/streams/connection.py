"""One connection of HTTP/2 to a replica."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

from fairway.serving.http2.errors import Code, SessionError
from fairway.serving.http2.frames import LARGEST_WINDOW
from fairway.serving.http2.heads import RequestHeaders, read_request_headers
from fairway.serving.http2.hpack import Headers
from fairway.serving.http2.session import Terms
from fairway.serving.http2.stream import Stream
from fairway.serving.replica.streams.bridged import Bridged
from fairway.serving.replica.streams.call import Call
from fairway.serving.replica.streams.dialogue import Dialogue
from fairway.serving.replica.streams.request import ReplicaSession, Request

if TYPE_CHECKING:
    from fairway.serving.replica.asgi import App

TERMS = Terms(streams=256, stream_window=1 << 20, window=4 << 20)
_KNOWN = 64
"""Blocks of headers that are remembered when checked, a connection."""
PING_SECONDS = 0.002
"""How long an answer to PING may wait for another frame to go with."""
_WRITE_LIMIT = 256 * 1024
_DRAIN_SECONDS = 1.0
"""How long streams that the client began before it read the GOAWAY may come."""
_IDLE_SECONDS = 600.0

_OPEN: dict[StreamsConnection, None] = {}
"""All connections of this process."""


def receiving() -> bool:
    """Whether a request is arriving."""
    return any(not stream.heard_all for connection in _OPEN for stream in connection.streams.values())


def sweep(now: float, seconds: float, *, draining: bool) -> None:
    """End streams whose request does not come, connections whose client reads nothing, and those that are idle for long."""
    for connection in list(_OPEN):
        connection.sweep(now, seconds)
        if draining:
            connection.drain()


class StreamsConnection(ReplicaSession, asyncio.Protocol):
    """Streams of one client.

    Promises: each request gets one answer or the end of its stream; what a client sends, and what it does not read, is bounded.
    """

    def __init__(self, app: App, state: Any) -> None:
        """`state`: where uvicorn keeps the connections that it closes at the end."""
        super().__init__(TERMS, self._put, server=True, now=time.perf_counter)
        self.app = app
        self.unread = 0
        """Bytes that the client has not read, when that was last looked at."""
        self._state = state
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._heads: dict[Headers, RequestHeaders] = {}
        self._since = time.perf_counter()
        """When something last came, or went."""
        self._drained = 0.0
        self._flushes = False

    # From the network.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_LIMIT)
        _OPEN[self] = None
        self._state.connections.add(self)
        self.greet()

    def data_received(self, data: bytes) -> None:
        """Some bytes of the client."""
        self._since = time.perf_counter()
        self.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        _OPEN.pop(self, None)
        self._state.connections.discard(self)
        self.app.bodies.held.free(self)
        for stream in list(self.streams.values()):
            self.forget(stream)
            cast(Request, stream).gone()

    def pause_writing(self) -> None:
        """The client does not read: nothing more is read from it, and nothing more written."""
        self.blocked = True
        self._transport.pause_reading()
        self.unread = self._transport.get_write_buffer_size()
        self.app.bodies.held.take(self, self.unread)

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self.blocked = False
        self.app.bodies.held.free(self)
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self.pump()

    # From uvicorn and the server.

    def shutdown(self) -> None:
        """Uvicorn closes: at the end of the grace, or when all is quiet."""
        self.drain()
        if not self.streams:
            self._transport.close()

    def drain(self) -> None:
        """Take no new streams, but those that the client began before it knew."""
        now = time.perf_counter()
        if not self._drained:
            self._drained = now
            self.goodbye(LARGEST_WINDOW)
        elif not self.said_goodbye and now - self._drained > _DRAIN_SECONDS:
            self.said_goodbye = True
            self.goodbye(self.last)
        if self.said_goodbye and not self.streams:
            self._transport.close()

    def sweep(self, now: float, seconds: float) -> None:
        """End what takes too long."""
        for stream in list(self.streams.values()):
            cast(Request, stream).sweep(now, seconds)
        if self.blocked:
            left = self._transport.get_write_buffer_size()
            if left != self.unread:
                self.unread, self._since = left, now
        stuck = self.blocked or (self.in_head and not self.streams)
        if now - self._since > (seconds if stuck else _IDLE_SECONDS) and (stuck or not self.streams):
            self._transport.abort()

    def let_go(self) -> None:
        """The client does not read its answers, and others need the room."""
        self._transport.abort()

    # Events of the session.

    def begin_stream(self, number: int) -> Stream:
        """A stream that is not known yet for what it is."""
        return Bridged(number, self)

    def on_headers(self, stream: Stream, headers: Headers, ended: bool) -> None:
        """A request, or its trailers."""
        if stream.has_head:
            cast(Request, stream).on_data(b"", True)
            return
        head = self._heads.get(headers)
        if head is None:
            head = read_request_headers(headers)
            if len(self._heads) >= _KNOWN:
                self._heads.clear()
            self._heads[headers] = head
        request = self._request(stream, head)
        request.has_head = True
        request.begin(head, ended)

    def _request(self, stream: Stream, head: RequestHeaders) -> Request:
        """The stream as what its head says it is."""
        kind: type[Request] = Bridged
        if head.is_grpc and head.method == b"POST":
            if head.path in self.app.lane:
                kind = Call
            elif Dialogue.speaks(head.path):
                kind = Dialogue
        if kind is Bridged:
            return cast(Request, stream)
        made = kind(stream.number, self)
        made.window, made.left, made.heard_all = stream.window, stream.left, stream.heard_all
        self.streams[stream.number] = made
        return made

    def on_data(self, stream: Stream, piece: bytes, ended: bool) -> None:
        """Some of a request's body."""
        cast(Request, stream).on_data(piece, ended)

    def on_reset(self, stream: Stream, code: int) -> None:
        """The client does not want the answer any more."""
        cast(Request, stream).gone()

    def on_too_many_headers(self, stream: Stream) -> None:
        """Refused alone; the connection goes on."""
        self.reset(stream, Code.ENHANCE_YOUR_CALM)

    def on_failure(self, problem: SessionError) -> None:
        """The client does not speak HTTP/2 as it should."""
        for stream in list(self.streams.values()):
            self.forget(stream)
            cast(Request, stream).gone()
        self._transport.close()

    def flush_soon(self) -> None:
        """At the latest after a moment."""
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_later(PING_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        self._flushes = False
        self.flush()

    def _put(self, wire: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(wire)
