"""A client's HTTP/1.1 connection: requests one after another, each answered before the next is parsed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from fairway.serving.router.access.admission import AdmittedRequest
from fairway.serving.router.access.refusal import RequestRefusal
from fairway.serving.router.chunked_body import LAST, ChunkedBodyReader, encode
from fairway.serving.router.http1_backend import READ, WRITE_LIMIT, has_error
from fairway.serving.router.http1_exchange import RequestExchange, own_answer
from fairway.serving.router.http2_client import Http2ClientConnection
from fairway.serving.router.message_head import (
    CHUNKED,
    HEAD_LIMIT,
    BadHeadError,
    RequestHead,
    diagnose,
    is_hopeless,
    read_request,
)
from fairway.serving.router.routing.router_state import RouterState
from fairway.serving.router.websocket_tunnel import open_tunnel

PREFACE_HEAD = b"PRI * HTTP/2.0\r\n\r\n"
"""The first bytes of HTTP/2 (RFC 9113, 3.4), as far as they look like a head of HTTP/1.1."""
_LINGER = 2.0
"""Seconds during which input is read and discarded after the last response, so that the client can read that response."""


class Http1ClientConnection(asyncio.BufferedProtocol):
    """One client connection."""

    __slots__ = (
        "_asked", "_chunks", "_desk", "_ended", "_exchange", "_held_back", "_left", "_lingers", "_raw", "_slow", "_transport",
        "_unsent", "deadline", "peer", "probe_at", "received", "secure", "sent",
    )  # fmt: skip

    def __init__(self, desk: RouterState) -> None:
        self.deadline = math.inf
        self.probe_at = math.inf
        self.peer = b""
        self.received = 0
        self.sent = 0
        self.secure = False
        self._desk = desk
        self._asked = False
        """Whether a request has arrived."""
        self._exchange: RequestExchange | None = None
        self._raw = b""
        """Input that was not parsed yet."""
        self._left = 0
        """Bytes of the request's body still to come."""
        self._chunks: ChunkedBodyReader | None = None
        self._held_back = False
        self._slow = False
        """Whether the client reads the response more slowly than it arrives."""
        self._lingers = False
        self._ended = False
        """Whether the client sends no more: it closed its half of the connection, or all of it."""
        self._unsent = 0
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; refuse it if there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_LIMIT)
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]).encode() if address else b"unknown"
        self.secure = transport.get_extra_info("sslcontext") is not None
        crowded = len(self._desk.guests) >= self._desk.limits.clients
        self._desk.guests.add(self)
        self.deadline = self._desk.now() + self._desk.limits.head
        if crowded:
            self._refuse(BadHeadError(503, f"the router has reached its limit of {self._desk.limits.clients} connections"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return READ

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were read into the buffer."""
        self.received += nbytes
        if not self._lingers:
            self.data_received(bytes(READ[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Take input: part of a request."""
        if self._lingers:
            return
        exchange = self._exchange
        if exchange is not None and not exchange.body_done:
            self._take_body(data)
        elif exchange is None and not self._slow:
            self._take_head(self._raw + data if self._raw else data)
        else:
            # The next request waits until this one is answered; read no more of it.
            self._raw += data
            self.hold_back()

    def eof_received(self) -> bool:
        """Handle the end of the client's input. Requests received in full are answered; True keeps the connection open for that.

        A client that has left looks the same as one that closed only its half. `probe` finds out which of the two happened.
        """
        self._ended = True
        exchange = self._exchange
        if self._lingers:
            return False
        if exchange is None:
            return bool(self._raw and self._slow)
        if exchange.body_done:
            self.probe_at = self._desk.now() + self._desk.limits.leave
            return True
        exchange.cancel()
        if exchange.answered:
            self.broken()
        else:
            self._refuse(BadHeadError(400, "the connection ended before the body of the request did"))
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request in flight: the connection is closed."""
        self._desk.closed(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None and not exchange.over:
            exchange.cancel()

    def pause_writing(self) -> None:
        """Read from the backend more slowly too: the client reads slowly."""
        self._slow = True
        self.deadline = self._desk.now() + self._desk.limits.body
        if self._exchange is not None:
            self._exchange.answer_faster(False)

    def resume_writing(self) -> None:
        """Read from the backend at full speed again: the client has caught up."""
        self._slow = False
        if self._exchange is not None:
            self.deadline = self._desk.now() + self._desk.limits.answer
            self._exchange.answer_faster(True)
        else:
            self._next()

    # Called by the desk and the exchange.

    def probe(self) -> None:
        """Cancel the request if the client has left; if that is not known yet, send what will show it by the next probe.

        An interim response may precede any response, and clients must ignore it (RFC 9110, 15.2). If the client closed the
        whole connection, its kernel answers it with a reset.
        """
        exchange = self._exchange
        if has_error(self._transport):
            self._transport.abort()
            return
        self.probe_at = math.inf
        if exchange is not None and not exchange.answered and not exchange.head.plain:
            self.probe_at = self._desk.now() + self._desk.limits.leave
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def expire(self) -> None:
        """Handle a passed deadline."""
        exchange = self._exchange
        if self._lingers:
            self._stop_lingering()
        elif exchange is None:
            if self._raw.strip():
                self._refuse(BadHeadError(408, "the head of the request did not arrive in time"))
            else:
                self._transport.abort()
        elif self._slow or not exchange.body_done or not exchange.expire():
            self._transport.abort()

    def write(self, wire: bytes) -> None:
        """Send part of the response."""
        if not self._slow:
            self.deadline = self._desk.now() + self._desk.limits.answer
        self.sent += len(wire)
        self._transport.write(wire)

    def finished(self, *, keep: bool) -> None:
        """Go on to the next request, or close: the response was sent."""
        self._exchange = None
        self.probe_at = math.inf
        if not keep or (self._ended and not self._raw):
            self._linger()
            return
        limits = self._desk.limits
        self.deadline = self._desk.now() + (limits.drain_idle if self._desk.draining else limits.idle)
        if self._raw:
            # Parse the input already received before reading more.
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self.go_on()

    def broken(self) -> None:
        """Abort the connection: the response cannot be completed, and a truncated response shows the client that."""
        self._exchange = None
        self._transport.abort()

    def waits_for_answer(self) -> None:
        """Set the deadline for the response: all input so far was passed on."""
        limits = self._desk.limits
        exchange = self._exchange
        self.deadline = self._desk.now() + (limits.answer if exchange is None or exchange.body_done else limits.body)

    def hold_back(self) -> None:
        """Pause reading."""
        if not self._held_back and not self._transport.is_closing():
            self._held_back = True
            self._transport.pause_reading()
            self.deadline = self._desk.now() + self._desk.limits.answer + self._desk.routes.plan.hold_seconds

    def go_on(self) -> None:
        """Resume reading."""
        if self._held_back and not self._transport.is_closing():
            self._held_back = False
            self._transport.resume_reading()
            if self._exchange is not None and not self._exchange.body_done:
                self.deadline = self._desk.now() + self._desk.limits.body

    def drain(self) -> None:
        """Shorten an idle connection's deadline: the router is being replaced."""
        if self._exchange is None:
            self.deadline = min(self.deadline, self._desk.now() + self._desk.limits.drain_idle)

    def close_idle(self) -> None:
        """Close now if no request is in flight."""
        if self._exchange is None:
            self._transport.close()

    def review(self, admits: Callable[[AdmittedRequest], bool]) -> None:
        """End the request in flight if its key is no longer valid."""
        if self._exchange is not None:
            self._exchange.review(admits)

    # Requests.

    def _next(self) -> None:
        if self._exchange is None and self._raw and not self._lingers and not self._slow:
            # A client that does not read its responses gets no more of them.
            data, self._raw = self._raw, b""
            self._take_head(data)

    def _take_head(self, data: bytes) -> None:
        # Tolerate one empty line before a request: old clients end bodies that way.
        start = 2 if data.startswith(b"\r\n") else 0
        end = data.find(b"\r\n\r\n", start, HEAD_LIMIT)
        if end < 0:
            self._await_head(data)
            return
        self._raw = b""
        try:
            raw = data[start : end + 4]
            head = read_request(raw)
            piece, done = self._first_body(head, data[end + 4 :])
        except BadHeadError as problem:
            if data.startswith(PREFACE_HEAD) and not self._asked:
                self._speak_http2(data)
            else:
                self._refuse(problem)
            return
        self._asked = True
        admitted = self._desk.admit(head, self.peer, raw, secure=self.secure)
        if isinstance(admitted, RequestRefusal):
            self._turn_away(head, admitted, done)
            return
        if head.upgrades:
            if self._desk.routes.plan.observed.model:
                self._refuse(BadHeadError(501, "a model does not accept WebSockets; only a command does"))
                return
            self._desk.guests.discard(self)
            open_tunnel(self._desk, self._transport, head, data[end + 4 :], self.peer, admitted, self)
            return
        if self._ended and not done:
            self._refuse(BadHeadError(400, "the connection ended before the body of the request did"))
            return
        exchange = self._exchange = RequestExchange(self, self._desk, head, piece, done, admitted)
        if self._ended:
            self.probe_at = self._desk.now() + self._desk.limits.leave
        # No deadline while it waits for a backend: the desk limits that.
        self.deadline = math.inf
        if not done:
            self.go_on()
        exchange.begin()

    def _speak_http2(self, data: bytes) -> None:
        """Switch to HTTP/2: the client sent its preface."""
        self._desk.guests.discard(self)
        other = Http2ClientConnection(self._desk, self.peer, secure=self.secure, received=self.received)
        self._transport.set_protocol(other)
        other.connection_made(self._transport)
        other.data_received(data)

    def _await_head(self, data: bytes) -> None:
        if data.strip() and not self._raw.strip():
            self.deadline = self._desk.now() + self._desk.limits.head
        self._raw = data
        if is_hopeless(data):
            self._refuse(diagnose(data))
        elif self._ended:
            self._linger()
        else:
            self.go_on()

    def _first_body(self, head: RequestHead, data: bytes) -> tuple[bytes, bool]:
        """Return the part of the body that came with the head, as sent on the wire, and whether that is all of it."""
        self._chunks = ChunkedBodyReader(400) if head.length == CHUNKED else None
        self._left = max(head.length, 0)
        if not data:
            return b"", not head.length
        return self._body(data)

    def _take_body(self, data: bytes) -> None:
        exchange = self._exchange
        assert exchange is not None
        try:
            wire, done = self._body(data)
        except BadHeadError as problem:
            exchange.cancel()
            if exchange.answered:
                self.broken()
            else:
                self._refuse(problem)
            return
        if done or not self._held_back:
            self.waits_for_answer()
        exchange.on_body(wire, done)

    def _body(self, data: bytes) -> tuple[bytes, bool]:
        if self._chunks is not None:
            piece = self._chunks.feed(data)
            wire = encode(piece) if piece else b""
            if self._chunks.done:
                self._raw = self._chunks.rest
                return wire + LAST, True
            return wire, False
        if len(data) > self._left:
            self._raw = data[self._left :]
            data = data[: self._left]
        self._left -= len(data)
        return data, not self._left

    def _turn_away(self, head: RequestHead, refusal: RequestRefusal, done: bool) -> None:
        """Refuse a request that is not admitted. Another one may follow if this one's body has arrived in full."""
        keep = done and head.keep_alive and not refusal.close and not self._desk.draining
        request_id = self._desk.note_refused(refusal.status, refusal.reason, self.peer, head)
        refusal = replace(refusal, headers=(*refusal.headers, (b"x-request-id", request_id)))
        wire = refusal.render(head.target, keep=keep, bodiless=head.method == b"HEAD")
        self.sent += len(wire)
        self._transport.write(wire)
        self.finished(keep=keep)

    def _refuse(self, problem: BadHeadError) -> None:
        """Refuse a request that cannot be parsed, and close: where the next request would begin is unknown."""
        self._exchange = None
        request_id = self._desk.note_refused(problem.status, problem.reason, self.peer)
        wire = own_answer(problem.status, problem.reason, request_id, keep=False)
        self.sent += len(wire)
        self._transport.write(wire)
        self._linger()

    def _linger(self) -> None:
        """End the output and read on for a moment: closing with unread input would make the client lose the response."""
        self._lingers = True
        self._raw = b""
        self.deadline = self._desk.now() + _LINGER
        if self._transport.is_closing():
            return
        if self._ended:
            # No more input can come.
            self._transport.close()
            return
        if self._held_back:
            self._held_back = False
            self._transport.resume_reading()
        # TLS has no half-closed connection: the client closes it after reading the response, or the deadline passes.
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _stop_lingering(self) -> None:
        """Close, unless the client is still reading the response."""
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent != self._unsent:
            self._unsent = unsent
            self.deadline = self._desk.now() + self._desk.limits.body
        elif unsent:
            self._transport.abort()
        else:
            self._transport.close()
