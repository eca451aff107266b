"""One HTTP/2 connection to a replica."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

from fairway.serving.http2.frame import LARGEST_WINDOW
from fairway.serving.http2.hpack import Headers
from fairway.serving.http2.http2_error import Http2ConnectionError, Http2ErrorCode
from fairway.serving.http2.http2_session import Http2Limits
from fairway.serving.http2.http2_stream import Http2Stream
from fairway.serving.http2.request_header import RequestHeaders, read_request_headers
from fairway.serving.replica.http.http2.asgi_request import AsgiStreamRequest
from fairway.serving.replica.http.http2.grpc_call import GrpcUnaryCall
from fairway.serving.replica.http.http2.grpc_stream import GrpcMessageStream
from fairway.serving.replica.http.http2.http2_request import Http2Request, ReplicaHttp2Session

if TYPE_CHECKING:
    from fairway.serving.replica.http.application import ReplicaApplication

TERMS = Http2Limits(streams=256, stream_window=1 << 20, window=4 << 20)
_KNOWN = 64
"""Number of validated header blocks to cache per connection."""
PING_SECONDS = 0.002
"""Maximum delay of an answer to PING, to send it together with another frame."""
_WRITE_LIMIT = 256 * 1024
_DRAIN_SECONDS = 1.0
"""Seconds in which streams may still arrive that the client began before it received the GOAWAY."""
_IDLE_SECONDS = 600.0

_OPEN: dict[ReplicaHttp2Connection, None] = {}
"""All connections of this process."""


def receiving() -> bool:
    """Whether a request is arriving."""
    return any(not stream.heard_all for connection in _OPEN for stream in connection.streams.values())


def sweep(now: float, seconds: float, *, draining: bool) -> None:
    """End streams whose request does not arrive, connections whose client does not read, and connections idle for long."""
    for connection in list(_OPEN):
        connection.sweep(now, seconds)
        if draining:
            connection.drain()


class ReplicaHttp2Connection(ReplicaHttp2Session, asyncio.Protocol):
    """The streams of one client.

    Promises: each request gets one answer or the end of its stream; the memory for received and unread data is bounded.
    """

    def __init__(self, app: ReplicaApplication, state: Any) -> None:
        """`state`: where uvicorn keeps the connections that it closes at shutdown."""
        super().__init__(TERMS, self._put, server=True, now=time.perf_counter)
        self.app = app
        self.unread = 0
        """Bytes that the client had not read at the last check."""
        self._state = state
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._heads: dict[Headers, RequestHeaders] = {}
        self._since = time.perf_counter()
        """When data was last received or read by the client."""
        self._drained = 0.0
        self._flushes = False

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the session."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_LIMIT)
        _OPEN[self] = None
        self._state.connections.add(self)
        self.greet()

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        self._since = time.perf_counter()
        self.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the requests of a closed connection."""
        _OPEN.pop(self, None)
        self._state.connections.discard(self)
        self.app.bodies.held.free(self)
        for stream in list(self.streams.values()):
            self.forget(stream)
            cast(Http2Request, stream).gone()

    def pause_writing(self) -> None:
        """Stop reading from and writing to a client that does not read."""
        self.blocked = True
        self._transport.pause_reading()
        self.unread = self._transport.get_write_buffer_size()
        self.app.bodies.held.take(self, self.unread)

    def resume_writing(self) -> None:
        """Resume after the client has read most of the data."""
        self.blocked = False
        self.app.bodies.held.free(self)
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self.pump()

    # Called by uvicorn and the server.

    def shutdown(self) -> None:
        """Drain the connection, and close it if it has no streams.

        Uvicorn calls this at the end of the grace period, or when the server is quiet.
        """
        self.drain()
        if not self.streams:
            self._transport.close()

    def drain(self) -> None:
        """Accept no new streams, except those that the client began before it received the GOAWAY."""
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
        """End streams and connections that take too long."""
        for stream in list(self.streams.values()):
            cast(Http2Request, stream).sweep(now, seconds)
        if self.blocked:
            unread = self._transport.get_write_buffer_size()
            if unread != self.unread:
                self.unread, self._since = unread, now
        stuck = self.blocked or (self.in_head and not self.streams)
        if now - self._since > (seconds if stuck else _IDLE_SECONDS) and (stuck or not self.streams):
            self._transport.abort()

    def let_go(self) -> None:
        """Abort the connection: the client does not read its answers, and the memory is needed for others."""
        self._transport.abort()

    # Called by the session.

    def begin_stream(self, number: int) -> Http2Stream:
        """Create a stream whose kind is not known yet."""
        return AsgiStreamRequest(number, self)

    def on_headers(self, stream: Http2Stream, headers: Headers, ended: bool) -> None:
        """Begin a request, or end it with its trailers."""
        if stream.has_head:
            cast(Http2Request, stream).on_data(b"", True)
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

    def _request(self, stream: Http2Stream, head: RequestHeaders) -> Http2Request:
        """Replace the stream by one of the kind that its head requires."""
        kind: type[Http2Request] = AsgiStreamRequest
        if head.is_grpc and head.method == b"POST":
            if head.path in self.app.lane:
                kind = GrpcUnaryCall
            elif GrpcMessageStream.speaks(head.path):
                kind = GrpcMessageStream
        if kind is AsgiStreamRequest:
            return cast(Http2Request, stream)
        request = kind(stream.number, self)
        request.window, request.left, request.heard_all = stream.window, stream.left, stream.heard_all
        self.streams[stream.number] = request
        return request

    def on_data(self, stream: Http2Stream, piece: bytes, ended: bool) -> None:
        """Pass on part of a request's body."""
        cast(Http2Request, stream).on_data(piece, ended)

    def on_reset(self, stream: Http2Stream, code: int) -> None:
        """Cancel a request that the client no longer needs."""
        cast(Http2Request, stream).gone()

    def on_too_many_headers(self, stream: Http2Stream) -> None:
        """Refuse only this request; the connection continues."""
        self.reset(stream, Http2ErrorCode.ENHANCE_YOUR_CALM)

    def on_failure(self, problem: Http2ConnectionError) -> None:
        """Close the connection, because the client violated the HTTP/2 protocol."""
        for stream in list(self.streams.values()):
            self.forget(stream)
            cast(Http2Request, stream).gone()
        self._transport.close()

    def flush_soon(self) -> None:
        """Flush after `PING_SECONDS` at the latest."""
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_later(PING_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        self._flushes = False
        self.flush()

    def _put(self, wire: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(wire)
