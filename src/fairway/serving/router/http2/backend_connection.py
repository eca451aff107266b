"""One HTTP/2 connection to a backend, and the requests on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import cast

from fairway.serving.http2.grpc_status import GRPC
from fairway.serving.http2.hpack import Header, Headers, encode
from fairway.serving.http2.http2_error import Http2ConnectionError, Http2ErrorCode
from fairway.serving.http2.http2_session import Http2Limits, Http2Session
from fairway.serving.http2.http2_stream import Http2Stream
from fairway.serving.http2.request_header import read_answer_headers, read_trailers
from fairway.serving.router.chunked_body import ChunkedBodyReader
from fairway.serving.router.http1_backend import READ, WRITE_LIMIT, BackendRequester
from fairway.serving.router.message_head import CHUNKED, BadHeadError, ResponseHead, answer_of

TERMS = Http2Limits(streams=0, stream_window=64 * 1024 * 2, window=1 << 20)
MOST_STREAMS = 256
"""Limit on requests on one connection, even if the backend allows more."""
_LAST_NUMBER = (1 << 31) - 1
_DROPPED = frozenset({b"connection", b"transfer-encoding", b"inference-header-content-length", b"host"})


class Http2BackendConnection(Http2Session, asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self) -> None:
        super().__init__(TERMS, self._put, server=False, now=time.monotonic)
        self.idle_since = 0.0
        self.lost = False
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._next = 1
        self._leaves = False

    @property
    def has_room(self) -> bool:
        """Whether another request may begin."""
        usable = not (self.lost or self.said_goodbye or self._leaves) and self._next < _LAST_NUMBER
        return usable and len(self.streams) < min(self.most_streams, MOST_STREAMS)

    def open(self, stream: Http2BackendStream) -> None:
        """Assign a stream its number."""
        stream.number = self.last = self._next
        self._next += 2
        self._add(stream)

    def leave(self) -> None:
        """Take no new requests; close after the last one."""
        self._leaves = True
        self.close_if_idle()

    def close_if_idle(self) -> None:
        """Close a connection that takes no new requests, once it has none."""
        if (self._leaves or self.said_goodbye) and not self.streams and not self.lost:
            self.lost = True
            self._transport.close()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the opened transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_LIMIT)
        self.greet()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return READ

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were read into the buffer."""
        self.receive(bytes(READ[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests: the connection is closed."""
        self.lost = True
        self._lose(exc)

    def pause_writing(self) -> None:
        """Pause writing: the backend reads slowly."""
        self.blocked = True

    def resume_writing(self) -> None:
        """Resume writing: the backend has caught up."""
        self.blocked = False
        self.pump()

    # Events of the session.

    def on_headers(self, stream: Http2Stream, headers: Headers, ended: bool) -> None:
        """Take the head of a response, or its trailers."""
        cast(Http2BackendStream, stream).on_headers(headers, ended)

    def on_data(self, stream: Http2Stream, piece: bytes, ended: bool) -> None:
        """Take part of a response."""
        cast(Http2BackendStream, stream).on_data(piece, ended)

    def on_reset(self, stream: Http2Stream, code: int) -> None:
        """End a request whose stream the backend has reset."""
        problem = BadHeadError(502, f"the replica ended the stream of the request (code {code})")
        cast(Http2BackendStream, stream).lose(problem, unread=code == Http2ErrorCode.REFUSED_STREAM)
        self.close_if_idle()

    def on_goodbye(self, last: int) -> None:
        """End the requests after `last`: the backend has not processed them, so they may be retried elsewhere."""
        for stream in list(self.streams.values()):
            if stream.number > last:
                self.forget(stream)
                cast(Http2BackendStream, stream).lose(None, unread=True)
        self.close_if_idle()

    def on_failure(self, problem: Http2ConnectionError) -> None:
        """End all requests and close: the backend violates HTTP/2."""
        self._lose(BadHeadError(502, f"the replica violated HTTP/2: {problem.reason}"))
        self._transport.close()

    def forget(self, stream: Http2Stream) -> None:
        """Remove a finished request."""
        super().forget(stream)
        if not self.streams:
            self.idle_since = time.monotonic()

    def _lose(self, problem: Exception | None) -> None:
        for stream in list(self.streams.values()):
            super().forget(stream)
            cast(Http2BackendStream, stream).lose(problem, unread=False)

    def _put(self, wire: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(wire)


class Http2BackendStream(Http2Stream):
    """One request. A `Channel` of the router."""

    __slots__ = ("_answer", "_asker", "_bodiless", "_chunks", "_full", "_uplink", "began", "lost")

    def __init__(self, uplink: Http2BackendConnection) -> None:
        super().__init__(0)
        self.began = False
        self.lost = False
        self._uplink = uplink
        self._asker: BackendRequester | None = None
        self._answer: ResponseHead | None = None
        self._bodiless = False
        self._chunks: ChunkedBodyReader | None = None
        self._full = False

    def ask(
        self, asker: BackendRequester, head: bytes, body: Sequence[bytes], *, length: int, bodiless: bool, whole: bool
    ) -> None:
        """Send a request. Head and body are in the form of HTTP/1.1."""
        self._asker = asker
        self._bodiless = bodiless
        self._chunks = ChunkedBodyReader(400) if length == CHUNKED else None
        pieces = self._unpacked(body)
        self._uplink.open(self)
        self._uplink.headers(self, encode(headers_of(head)), ended=whole and not pieces)
        for piece in pieces:
            self._uplink.data(self, piece, ended=whole and piece is pieces[-1])
        self._look_for_room()

    def send(self, wire: bytes, *, last: bool) -> None:
        """Send more of the body."""
        piece = self._chunks.feed(wire) if self._chunks is not None and wire else wire
        if piece or last:
            self._uplink.data(self, piece, ended=last)
        self._look_for_room()

    def hold_back(self) -> None:
        """Pause reading: the receiver of the response is slow."""
        self._uplink.hold(self)

    def go_on(self) -> None:
        """Resume reading."""
        self._uplink.go_on(self)

    def give_up(self) -> None:
        """Reset the stream: the response is no longer needed."""
        self._asker = None
        self.lost = True
        self._uplink.reset(self, Http2ErrorCode.CANCEL)
        self._uplink.close_if_idle()

    def close(self) -> None:
        """Release the stream: the response has ended."""
        self._asker = None
        self.lost = True
        self._uplink.reset(self, Http2ErrorCode.NO_ERROR)
        self._uplink.close_if_idle()

    def on_headers(self, headers: Headers, ended: bool) -> None:
        """Take the head of the response, or its trailers."""
        asker, answer = self._asker, self._answer
        if asker is None:
            return
        self.began = True
        if answer is not None:
            answer.trailers = [name + b": " + value for name, value in read_trailers(headers)]
            self._pass_on(asker, b"", True)
            return
        status, lines = read_answer_headers(headers)
        if status < 200:
            return
        self.has_head = True
        try:
            answer = answer_of(status, lines, bodiless=self._bodiless)
        except BadHeadError as problem:
            self.give_up()
            asker.on_lost(problem, False)
            return
        self._answer = answer
        if ended:
            # It may declare a length all the same, as the response to a HEAD does.
            answer.bodiless = True
            self._asker = None
        asker.on_answer(answer, b"", ended)

    def on_data(self, piece: bytes, ended: bool) -> None:
        """Take part of the response."""
        if self._asker is not None and (piece or ended):
            self._pass_on(self._asker, piece, ended)

    def lose(self, problem: Exception | None, *, unread: bool) -> None:
        """End the request: the stream ended before the response did."""
        self.lost = True
        asker, self._asker = self._asker, None
        if asker is not None:
            asker.on_lost(problem, unread)

    def on_sent(self) -> None:
        """Check for room: the backend has taken data."""
        self._look_for_room()

    def _pass_on(self, asker: BackendRequester, piece: bytes, ended: bool) -> None:
        if ended:
            self._asker = None
        asker.on_piece(piece, ended)

    def _look_for_room(self) -> None:
        """Pause the asker while too much is queued, and resume it afterwards."""
        if self._asker is None:
            return
        if not self._full and self.queued_size > WRITE_LIMIT:
            self._full = True
            self._asker.on_full()
        elif self._full and self.queued_size <= WRITE_LIMIT // 4:
            self._full = False
            self._asker.on_room()

    def _unpacked(self, body: Sequence[bytes]) -> list[bytes]:
        if self._chunks is None:
            return [piece for piece in body if piece]
        return [piece for piece in map(self._chunks.feed, body) if piece]


def headers_of(head: bytes) -> list[Header]:
    """Convert the head of an HTTP/1.1 request, as this router writes it, to HTTP/2 headers."""
    first, *lines = head[:-4].split(b"\r\n")
    method, target, _ = first.split(b" ")
    headers: list[Header] = []
    host, is_call = b"", False
    for line in lines:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name == b"host":
            host = value
        is_call = is_call or (name == b"content-type" and value.startswith(GRPC))
        if name not in _DROPPED:
            headers.append((name, value))
    pseudo = [(b":method", method), (b":scheme", b"http"), (b":path", target), (b":authority", host)]
    return [*pseudo, *([(b"te", b"trailers")] if is_call else []), *headers]
