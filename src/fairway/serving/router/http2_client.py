"""A client's HTTP/2 connection: concurrent requests, each on a stream."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import cast

from fairway.serving.http2.frame import LARGEST_WINDOW
from fairway.serving.http2.grpc_status import GRPC, of_http, status_lines
from fairway.serving.http2.hpack import Headers, encode
from fairway.serving.http2.http2_error import Http2ConnectionError, Http2ErrorCode, Http2UnsupportedError
from fairway.serving.http2.http2_session import Http2Limits, Http2Session
from fairway.serving.http2.http2_stream import Http2Stream
from fairway.serving.http2.request_header import RequestHeaders, malformed, read_request_headers
from fairway.serving.router.access.admission import AdmittedRequest
from fairway.serving.router.access.refusal import RequestRefusal
from fairway.serving.router.chunked_body import LAST
from fairway.serving.router.chunked_body import encode as chunk
from fairway.serving.router.http1_backend import READ, WRITE_LIMIT
from fairway.serving.router.http2_exchange import Http2RequestExchange
from fairway.serving.router.message_head import CHUNKED, LINE_LIMIT, RequestHead, request_of
from fairway.serving.router.routing.router_state import RouterState

TERMS = Http2Limits()
_KNOWN = 64
"""Limit on the heads that are remembered for a connection."""
_LOOK_SECONDS = 1.0
"""Interval at which the streams of a connection are checked, in seconds."""
_PING_SECONDS = 0.002
"""How long an answer to PING may wait for another frame to be sent with."""
_DRAIN_SECONDS = 1.0
"""How long new streams are accepted after GOAWAY: the client may have begun them before it read that."""
_NOT_OF_CALLS = frozenset({b"inference-header-content-length", b"accept-encoding"})
"""Headers that would make a replica read or write a gRPC message in another form."""
_BINARY = b"inference-header-content-length: 0"
"""Sent with a gRPC call to one of Fairway's own replicas: no part of the body is JSON."""


class Http2ClientConnection(Http2Session, asyncio.BufferedProtocol):
    """One connection. A `Guest` of the desk."""

    def __init__(self, desk: RouterState, peer: bytes, *, secure: bool = False, received: int = 0) -> None:
        super().__init__(TERMS, self._put, server=True, now=desk.now)
        self.desk = desk
        self.peer = peer
        self.secure = secure
        """Whether the connection uses TLS."""
        self.received = received
        self.sent = 0
        self.deadline = desk.now() + _LOOK_SECONDS
        self.probe_at = math.inf
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._heads: dict[Headers, tuple[RequestHeaders, RequestHead]] = {}
        self._begun: list[Http2ClientStream] = []
        """Requests whose head came with the bytes that are being read."""
        self._since = desk.now()
        self._head_since = math.inf
        self._flushes = False
        self._leaves = 0.0
        self._unsent = 0

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport, which carries HTTP/2 from here on."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_LIMIT)
        self.desk.guests.add(self)
        self.greet()
        if self.desk.draining:
            self.drain()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return READ

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were read into the buffer."""
        self.received += nbytes
        self.data_received(bytes(READ[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Process frames."""
        self._since = self.desk.now()
        self.receive(data)
        if self.in_head:
            self._head_since = min(self._head_since, self._since)
        else:
            self._head_since = math.inf
        begun = self._begun
        if begun:
            self._begun = []
            for stream in begun:
                stream.ask()

    def eof_received(self) -> bool:
        """Let the connection close: an HTTP/2 connection is never half-closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all requests: the connection is closed."""
        self.desk.closed(self)
        for stream in list(self.streams.values()):
            self.forget(stream)
            cast(Http2ClientStream, stream).cancel()

    def pause_writing(self) -> None:
        """Pause reading and writing: the client does not read."""
        self.blocked = True
        self._since = self.desk.now()
        self._unsent = self._transport.get_write_buffer_size()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading and writing: the client has caught up."""
        self.blocked = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self.pump()

    # Called by the desk.

    def probe(self) -> None:
        """Do nothing: an HTTP/2 client that leaves closes its connection or resets its stream."""

    def expire(self) -> None:
        """Check the deadlines of the requests and of the connection."""
        now, limits = self.desk.now(), self.desk.limits
        self.deadline = now + _LOOK_SECONDS
        for stream in list(self.streams.values()):
            cast(Http2ClientStream, stream).expire(now)
        if self.blocked:
            unsent = self._transport.get_write_buffer_size()
            if unsent != self._unsent:
                self._unsent, self._since = unsent, now
            if now - self._since > limits.body:
                self._transport.abort()
            return
        if self.failed or now - self._head_since > limits.head:
            self._transport.abort()
        elif not self.streams:
            idle = limits.drain_idle if self.desk.draining else limits.idle
            if self._leaves:
                self._close_after_drain(now)
            elif self.said_goodbye or now - self._since > idle:
                self.goodbye(self.last)
                self.said_goodbye = True
                self._transport.close()
        elif self._leaves:
            self._close_after_drain(now)

    def drain(self) -> None:
        """Send GOAWAY: the router is being replaced, and the client sends its next requests on another connection."""
        if not self._leaves:
            self._leaves = self.desk.now()
            self.goodbye(LARGEST_WINDOW)

    def close_idle(self) -> None:
        """Close now if no request is in flight; otherwise drain."""
        if not self.streams:
            self.goodbye(self.last)
            self._transport.close()
        else:
            self.drain()

    def review(self, admits: Callable[[AdmittedRequest], bool]) -> None:
        """End the requests whose keys are no longer valid."""
        for stream in list(self.streams.values()):
            cast(Http2ClientStream, stream).review(admits)

    def _close_after_drain(self, now: float) -> None:
        if not self.said_goodbye and now - self._leaves > _DRAIN_SECONDS:
            self.said_goodbye = True
            self.goodbye(self.last)
        if self.said_goodbye and not self.streams:
            self._transport.close()

    # Events of the session.

    def begin_stream(self, number: int) -> Http2Stream:
        """Return the stream of a new request."""
        return Http2ClientStream(number, self)

    def on_headers(self, stream: Http2Stream, headers: Headers, ended: bool) -> None:
        """Take the head of a request, or its trailers, which no replica reads."""
        request = cast(Http2ClientStream, stream)
        if stream.has_head:
            request.on_body(b"", True)
            return
        entry = self._heads.get(headers)
        if entry is None:
            try:
                head = read_request_headers(headers)
            except Http2UnsupportedError as problem:
                self._refuse(stream, problem)
                return
            entry = head, _request_head(head)
            if len(self._heads) >= _KNOWN:
                self._heads.clear()
            self._heads[headers] = entry
        stream.has_head = True
        request.begin(*entry, ended)
        self._begun.append(request)

    def _refuse(self, stream: Http2Stream, problem: Http2UnsupportedError) -> None:
        """Refuse a request for something that no client is offered."""
        request_id = self.desk.note_refused(501, problem.reason, self.peer)
        self.headers(stream, encode([(b":status", b"501"), (b"x-request-id", request_id)]), ended=True)

    def on_data(self, stream: Http2Stream, piece: bytes, ended: bool) -> None:
        """Take part of a body."""
        cast(Http2ClientStream, stream).on_body(piece, ended)

    def on_reset(self, stream: Http2Stream, code: int) -> None:
        """Cancel a request whose stream the client has reset."""
        cast(Http2ClientStream, stream).cancel()

    def on_too_many_headers(self, stream: Http2Stream) -> None:
        """Refuse this request only; the connection stays open."""
        self.headers(stream, encode([(b":status", b"431")]), ended=True)

    def on_failure(self, problem: Http2ConnectionError) -> None:
        """Cancel all requests and close: the client violates HTTP/2."""
        for stream in list(self.streams.values()):
            self.forget(stream)
            cast(Http2ClientStream, stream).cancel()
        self._transport.close()

    def flush_soon(self) -> None:
        """Flush after a short delay at the latest."""
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_later(_PING_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        self._flushes = False
        self.flush()

    def _put(self, wire: bytes) -> None:
        self.sent += len(wire)
        if not self._transport.is_closing():
            self._transport.write(wire)


class Http2ClientStream(Http2Stream):
    """One request. The `Client` of its exchange."""

    __slots__ = ("_connection", "_deadline", "_exchange", "_full", "_head", "_left", "_parts", "_request", "peer")

    def __init__(self, number: int, connection: Http2ClientConnection) -> None:
        super().__init__(number)
        self.peer = connection.peer
        self._connection = connection
        self._exchange: Http2RequestExchange | None = None
        self._head: RequestHeaders
        self._request: RequestHead
        self._parts: list[bytes] = []
        """Parts of the body that arrived before the request was processed."""
        self._left: int | None = None
        """Bytes of the body still to come, if known."""
        self._full = False
        self._deadline = math.inf

    # Called by the connection.

    def begin(self, head: RequestHeaders, request: RequestHead, ended: bool) -> None:
        """Take the head. The request is processed once everything received with it is read."""
        self._head, self._request = head, request
        self._left = head.length
        if ended:
            self._check_length(0, ended=True)

    def on_body(self, piece: bytes, ended: bool) -> None:
        """Take part of the body."""
        self._check_length(len(piece), ended=ended)
        exchange = self._exchange
        if exchange is None:
            self._parts.append(piece)
            return
        if exchange.over or exchange.body_done:
            return
        self._deadline = self._connection.desk.now() + self._connection.desk.limits.body
        if exchange.head.length == CHUNKED:
            wire = chunk(piece) if piece else b""
            piece = wire + LAST if ended else wire
        if ended:
            self.waits_for_answer()
        exchange.on_body(piece, ended)

    def ask(self) -> None:
        """Begin the exchange."""
        connection = self._connection
        if connection.streams.get(self.number) is not self:
            return
        desk = connection.desk
        request, parts, self._parts = self._request, self._parts, []
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        whole = self.heard_all
        request = _of_length(request, self._head.length if self._head.length is not None else len(body) if whole else CHUNKED)
        if request.length == CHUNKED:
            body = chunk(body) if body else b""
        call = self._head.is_grpc
        self._deadline = math.inf if whole else desk.now() + desk.limits.body
        if len(request.target) > LINE_LIMIT:
            reason = f"the target has {len(request.target)} bytes, at most {LINE_LIMIT} are read"
            self._turn_away(RequestRefusal(414, reason), request, call=call)
            return
        admitted = desk.admit(request, connection.peer, secure=connection.secure)
        if isinstance(admitted, RequestRefusal):
            self._turn_away(admitted, request, call=call)
            return
        self._exchange = exchange = Http2RequestExchange(self, desk, request, body, whole, admitted, call=call)
        exchange.begin()

    def _turn_away(self, refusal: RequestRefusal, request: RequestHead, *, call: bool) -> None:
        """Refuse a request that is not admitted."""
        request_id = self._connection.desk.note_refused(refusal.status, refusal.reason, self.peer, request)
        more = [*refusal.headers, (b"x-request-id", request_id)]
        if call:
            lines = [(b":status", b"200"), (b"content-type", GRPC), *more]
            self.headers(encode([*lines, *status_lines(of_http(refusal.status), refusal.reason)]), ended=True)
            return
        body = refusal.body(request.target)
        lines = [(b":status", b"%d" % refusal.status), *more]
        if body:
            lines += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        bodiless = not body or request.method == b"HEAD"
        self.headers(encode(lines), ended=bodiless)
        if not bodiless:
            self.data(body, ended=True)

    def cancel(self) -> None:
        """Cancel the request: its stream is no longer among those of the connection."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and not exchange.over:
            exchange.cancel()

    def review(self, admits: Callable[[AdmittedRequest], bool]) -> None:
        """End the request if its key is no longer valid."""
        if self._exchange is not None:
            self._exchange.review(admits)

    def expire(self, now: float) -> None:
        """End the request if its deadline has passed."""
        if now < self._deadline:
            return
        exchange = self._exchange
        if exchange is None or self.queued or not exchange.body_done or not exchange.expire():
            self.broken()

    def on_sent(self) -> None:
        """Renew the deadline: the client has taken part of the response."""
        limits = self._connection.desk.limits
        if self._full and self.queued_size <= WRITE_LIMIT // 4:
            self._full = False
            if self._exchange is not None:
                self._exchange.answer_faster(True)
        self._deadline = self._connection.desk.now() + (limits.body if self.queued else limits.answer)

    # Called by the exchange.

    def headers(self, block: bytes, *, ended: bool) -> None:
        """Send headers, or trailers."""
        self._renew()
        self._connection.headers(self, block, ended=ended)

    def data(self, piece: bytes, *, ended: bool) -> None:
        """Send part of the body."""
        self._renew()
        self._connection.data(self, piece, ended=ended)
        if self.queued_size > WRITE_LIMIT and not self._full:
            self._full = True
            self._deadline = self._connection.desk.now() + self._connection.desk.limits.body
            if self._exchange is not None:
                self._exchange.answer_faster(False)

    def unary(self, head: bytes, piece: bytes, trailers: bytes) -> None:
        """Send a whole response."""
        self._renew()
        self._connection.unary(self, head, piece, trailers)

    def write(self, wire: bytes) -> None:
        """Do nothing: an HTTP/2 response is never in the form of HTTP/1.1."""

    def finished(self, *, keep: bool) -> None:
        """Release the exchange: the response was sent, or is queued until the client takes it."""
        self._exchange = None
        self._deadline = self._connection.desk.now() + self._connection.desk.limits.body

    def broken(self) -> None:
        """Reset the stream: the response cannot be completed."""
        if self._connection.reset(self, Http2ErrorCode.INTERNAL_ERROR):
            self.cancel()

    def waits_for_answer(self) -> None:
        """Set the deadline for the response: all input so far was passed on."""
        limits, exchange = self._connection.desk.limits, self._exchange
        patience = limits.answer if exchange is None or exchange.body_done else limits.body
        self._deadline = self._connection.desk.now() + patience

    def hold_back(self) -> None:
        """Pause reading the body."""
        self._connection.hold(self)
        desk = self._connection.desk
        self._deadline = desk.now() + desk.limits.answer + desk.routes.plan.hold_seconds

    def go_on(self) -> None:
        """Resume reading."""
        self._connection.go_on(self)

    def _renew(self) -> None:
        if not self.queued:
            self._deadline = self._connection.desk.now() + self._connection.desk.limits.answer

    def _check_length(self, size: int, *, ended: bool) -> None:
        if self._left is None:
            return
        self._left -= size
        if self._left < 0 or (ended and self._left):
            raise malformed("the length of the body differs from content-length")


def _request_head(head: RequestHeaders) -> RequestHead:
    more = [_BINARY] if head.is_grpc else []
    lines = [line for line in head.lines if not head.is_grpc or line[0] not in _NOT_OF_CALLS]
    return request_of(head.method, head.path, head.authority, lines, 0, more)


def _of_length(head: RequestHead, length: int) -> RequestHead:
    """Return the same head for a body of this length."""
    return RequestHead(head.method, head.target, head.host, head.lines, length, forwarded=dict(head.forwarded))
