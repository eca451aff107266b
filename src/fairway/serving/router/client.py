"""A connection from outside: requests one after another, each answered before the next is looked at."""

from __future__ import annotations

import asyncio
import math
from typing import cast

from fairway.serving.router.chunks import LAST, ChunkReader, encode
from fairway.serving.router.desk import Desk
from fairway.serving.router.exchange import Exchange, own_answer
from fairway.serving.router.head import CHUNKED, HEAD_LIMIT, BadHeadError, RequestHead, diagnose, is_hopeless, read_request

_AHEAD = 64 * 1024
"""Bytes of following requests that are read while one is under way."""
_LINGER = 2.0
"""How long what still comes is read and thrown away after a last answer, so that the sender gets to read it."""


class ClientConnection(asyncio.Protocol):
    """One connection."""

    __slots__ = (
        "_chunks", "_desk", "_exchange", "_held_back", "_left", "_lingers", "_raw", "_slow", "_transport", "_unsent", "deadline",
        "peer",
    )  # fmt: skip

    def __init__(self, desk: Desk) -> None:
        self.deadline = math.inf
        self.peer = b""
        self._desk = desk
        self._exchange: Exchange | None = None
        self._raw = b""
        """What came and was not looked at yet."""
        self._left = 0
        """Bytes of the request's body still to come."""
        self._chunks: ChunkReader | None = None
        self._held_back = False
        self._slow = False
        """The client does not take the answer as fast as it comes."""
        self._lingers = False
        self._unsent = 0
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)

    # From the network.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]).encode() if address else b"unknown"
        self._desk.guests.add(self)
        self.deadline = self._desk.now() + self._desk.limits.head

    def data_received(self, data: bytes) -> None:
        """Some of a request."""
        if self._lingers:
            return
        exchange = self._exchange
        if exchange is not None and not exchange.body_done:
            self._take_body(data)
        elif exchange is None and not self._slow:
            self._take_head(self._raw + data if self._raw else data)
        else:
            self._raw += data
            if len(self._raw) > _AHEAD:
                self.hold_back()

    def eof_received(self) -> bool:
        """The client has left: what it asked for is not wanted any more. (None that is known closes only its half.)"""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._desk.guests.discard(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None and not exchange.over:
            exchange.cancel()

    def pause_writing(self) -> None:
        """The client reads slowly: so is the backend read."""
        self._slow = True
        self.deadline = self._desk.now() + self._desk.limits.body
        if self._exchange is not None:
            self._exchange.answer_faster(False)

    def resume_writing(self) -> None:
        """It has caught up."""
        self._slow = False
        if self._exchange is not None:
            self.deadline = self._desk.now() + self._desk.limits.answer
            self._exchange.answer_faster(True)
        else:
            self._next()

    # From the desk and the exchange.

    def expire(self) -> None:
        """Something took too long."""
        exchange = self._exchange
        if self._lingers:
            self._stop_lingering()
        elif exchange is None:
            if self._raw:
                self._refuse(BadHeadError(408, "the head of the request did not come in time"))
            else:
                self._transport.abort()
        elif self._slow or not exchange.body_done or not exchange.expire():
            self._transport.abort()

    def write(self, wire: bytes) -> None:
        """Send some of the answer."""
        if not self._slow:
            self.deadline = self._desk.now() + self._desk.limits.answer
        self._transport.write(wire)

    def finished(self, *, keep: bool) -> None:
        """The answer is out."""
        self._exchange = None
        if not keep:
            self._linger()
            return
        if self._held_back:
            self.go_on()
        limits = self._desk.limits
        self.deadline = self._desk.now() + (limits.drain_idle if self._desk.draining else limits.idle)
        if self._raw:
            asyncio.get_running_loop().call_soon(self._next)

    def broken(self) -> None:
        """The answer cannot be completed; an end without an end tells the client so."""
        self._exchange = None
        self._transport.abort()

    def waits_for_answer(self) -> None:
        """All that there is was sent on."""
        limits = self._desk.limits
        exchange = self._exchange
        self.deadline = self._desk.now() + (limits.answer if exchange is None or exchange.body_done else limits.body)

    def hold_back(self) -> None:
        """Read no more for now."""
        if not self._held_back and not self._transport.is_closing():
            self._held_back = True
            self._transport.pause_reading()
            self.deadline = self._desk.now() + self._desk.limits.answer + self._desk.routes.plan.hold_seconds

    def go_on(self) -> None:
        """Read on."""
        if self._held_back and not self._transport.is_closing():
            self._held_back = False
            self._transport.resume_reading()
            if self._exchange is not None and not self._exchange.body_done:
                self.deadline = self._desk.now() + self._desk.limits.body

    def drain(self) -> None:
        """The router ends: an idle connection gets its last while."""
        if self._exchange is None:
            self.deadline = min(self.deadline, self._desk.now() + self._desk.limits.drain_idle)

    def close_idle(self) -> None:
        """Close at once when nothing is under way."""
        if self._exchange is None:
            self._transport.close()

    # Requests.

    def _next(self) -> None:
        if self._exchange is None and self._raw and not self._lingers and not self._slow:
            # Who does not take his answers gets no more of them.
            data, self._raw = self._raw, b""
            self._take_head(data)

    def _take_head(self, data: bytes) -> None:
        if data.startswith(b"\r\n"):
            # One empty line before a request is forgiven: old clients end their bodies so.
            data = data[2:]
        end = data.find(b"\r\n\r\n", 0, HEAD_LIMIT)
        if end < 0:
            self._await_head(data)
            return
        self._raw = b""
        try:
            head = read_request(data[: end + 4])
            piece, done = self._first_body(head, data[end + 4 :])
        except BadHeadError as problem:
            self._refuse(problem)
            return
        exchange = self._exchange = Exchange(self, self._desk, head, piece, done)
        # No deadline while it waits for a backend: the desk sees to that.
        self.deadline = math.inf
        exchange.begin()

    def _await_head(self, data: bytes) -> None:
        if data and not self._raw:
            self.deadline = self._desk.now() + self._desk.limits.head
        self._raw = data
        if is_hopeless(data):
            self._refuse(diagnose(data))

    def _first_body(self, head: RequestHead, data: bytes) -> tuple[bytes, bool]:
        """What came of the body together with the head, as it goes over the wire, and whether that is all."""
        self._chunks = ChunkReader(400) if head.length == CHUNKED else None
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

    def _refuse(self, problem: BadHeadError) -> None:
        """Answer a request that cannot be understood; where the next one would begin is anybody's guess."""
        self._exchange = None
        self._transport.write(own_answer(problem.status, problem.reason, b"", keep=False))
        self._linger()

    def _linger(self) -> None:
        """Say goodbye, and read on for a moment: closing with unread bytes would take the answer away from the sender."""
        self._lingers = True
        self._raw = b""
        self.deadline = self._desk.now() + _LINGER
        if self._transport.is_closing():
            return
        if self._held_back:
            self._held_back = False
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _stop_lingering(self) -> None:
        """Close, unless the client is still taking the answer."""
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent != self._unsent:
            self._unsent = unsent
            self.deadline = self._desk.now() + self._desk.limits.body
        elif unsent:
            self._transport.abort()
        else:
            self._transport.close()
