"""One connection of HTTP/2 to a backend, and the requests on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import cast

from fairway.serving.http2.errors import Code, SessionError
from fairway.serving.http2.grpc import GRPC
from fairway.serving.http2.heads import read_answer_headers, read_trailers
from fairway.serving.http2.hpack import Header, Headers, encode
from fairway.serving.http2.session import Session, Terms
from fairway.serving.http2.stream import Stream
from fairway.serving.router.chunks import ChunkReader
from fairway.serving.router.head import CHUNKED, AnswerHead, BadHeadError, answer_of
from fairway.serving.router.upstream import READ, WRITE_LIMIT, Asker

TERMS = Terms(streams=0, stream_window=64 * 1024 * 2, window=1 << 20)
MOST_STREAMS = 256
"""Requests on one connection, whatever the backend allows."""
_LAST_NUMBER = (1 << 31) - 1
_DROPPED = frozenset({b"connection", b"transfer-encoding", b"inference-header-content-length", b"host"})


class Uplink(Session, asyncio.BufferedProtocol):
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

    def open(self, stream: UplinkStream) -> None:
        """Give a stream its number."""
        stream.number = self.last = self._next
        self._next += 2
        self._add(stream)

    def leave(self) -> None:
        """No new requests; closed with the last one."""
        self._leaves = True
        self.close_if_idle()

    def close_if_idle(self) -> None:
        """Close a connection that is done."""
        if (self._leaves or self.said_goodbye) and not self.streams and not self.lost:
            self.lost = True
            self._transport.close()

    # From the network.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_LIMIT)
        self.greet()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read into."""
        return READ

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        self.receive(bytes(READ[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, and with it all its requests."""
        self.lost = True
        self._lose(exc)

    def pause_writing(self) -> None:
        """The backend reads slowly."""
        self.blocked = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self.blocked = False
        self.pump()

    # Events of the session.

    def on_headers(self, stream: Stream, headers: Headers, ended: bool) -> None:
        """The head of an answer, or its trailers."""
        cast(UplinkStream, stream).on_headers(headers, ended)

    def on_data(self, stream: Stream, piece: bytes, ended: bool) -> None:
        """Some of an answer."""
        cast(UplinkStream, stream).on_data(piece, ended)

    def on_reset(self, stream: Stream, code: int) -> None:
        """The backend gave a request up."""
        problem = BadHeadError(502, f"the replica ended the stream of the request (code {code})")
        cast(UplinkStream, stream).lose(problem, unread=code == Code.REFUSED_STREAM)
        self.close_if_idle()

    def on_goodbye(self, last: int) -> None:
        """Requests after the last one were not looked at: they may go elsewhere."""
        for stream in list(self.streams.values()):
            if stream.number > last:
                self.forget(stream)
                cast(UplinkStream, stream).lose(None, unread=True)
        self.close_if_idle()

    def on_failure(self, problem: SessionError) -> None:
        """The backend does not speak HTTP/2 as it should."""
        self._lose(BadHeadError(502, f"the replica does not speak HTTP/2 as it should: {problem.reason}"))
        self._transport.close()

    def forget(self, stream: Stream) -> None:
        """A request is over."""
        super().forget(stream)
        if not self.streams:
            self.idle_since = time.monotonic()

    def _lose(self, problem: Exception | None) -> None:
        for stream in list(self.streams.values()):
            super().forget(stream)
            cast(UplinkStream, stream).lose(problem, unread=False)

    def _put(self, wire: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(wire)


class UplinkStream(Stream):
    """One request. A `Channel` of the router."""

    __slots__ = ("_answer", "_asker", "_bodiless", "_chunks", "_full", "_uplink", "began", "lost")

    def __init__(self, uplink: Uplink) -> None:
        super().__init__(0)
        self.began = False
        self.lost = False
        self._uplink = uplink
        self._asker: Asker | None = None
        self._answer: AnswerHead | None = None
        self._bodiless = False
        self._chunks: ChunkReader | None = None
        self._full = False

    def ask(self, asker: Asker, head: bytes, body: Sequence[bytes], *, length: int, bodiless: bool, whole: bool) -> None:
        """Send a request. The head and the body are in the form of HTTP/1.1."""
        self._asker = asker
        self._bodiless = bodiless
        self._chunks = ChunkReader(400) if length == CHUNKED else None
        pieces = self._unpacked(body)
        self._uplink.open(self)
        self._uplink.headers(self, encode(headers_of(head)), ended=whole and not pieces)
        for piece in pieces:
            self._uplink.data(self, piece, ended=whole and piece is pieces[-1])
        self._look_for_room()

    def send(self, wire: bytes, *, last: bool) -> None:
        """More of the body."""
        piece = self._chunks.feed(wire) if self._chunks is not None and wire else wire
        if piece or last:
            self._uplink.data(self, piece, ended=last)
        self._look_for_room()

    def hold_back(self) -> None:
        """Who gets the answer is slow."""
        self._uplink.hold(self)

    def go_on(self) -> None:
        """Read again."""
        self._uplink.go_on(self)

    def give_up(self) -> None:
        """The answer is not wanted any more."""
        self._asker = None
        self.lost = True
        self._uplink.reset(self, Code.CANCEL)
        self._uplink.close_if_idle()

    def close(self) -> None:
        """The answer has ended."""
        self._asker = None
        self.lost = True
        self._uplink.reset(self, Code.NO_ERROR)
        self._uplink.close_if_idle()

    def on_headers(self, headers: Headers, ended: bool) -> None:
        """The head of the answer, or what comes after it."""
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
            # It may have a length all the same, as an answer to HEAD has.
            answer.bodiless = True
            self._asker = None
        asker.on_answer(answer, b"", ended)

    def on_data(self, piece: bytes, ended: bool) -> None:
        """Some of the answer."""
        if self._asker is not None and (piece or ended):
            self._pass_on(self._asker, piece, ended)

    def lose(self, problem: Exception | None, *, unread: bool) -> None:
        """It ended before the answer did."""
        self.lost = True
        asker, self._asker = self._asker, None
        if asker is not None:
            asker.on_lost(problem, unread)

    def on_sent(self) -> None:
        """The backend takes more."""
        self._look_for_room()

    def _pass_on(self, asker: Asker, piece: bytes, ended: bool) -> None:
        if ended:
            self._asker = None
        asker.on_piece(piece, ended)

    def _look_for_room(self) -> None:
        """Tell the asker when too much waits, and when it does no longer."""
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
    """The head of a request of HTTP/1.1, as this router writes it, for HTTP/2."""
    first, *lines = head[:-4].split(b"\r\n")
    method, target, _ = first.split(b" ")
    found: list[Header] = []
    host, is_call = b"", False
    for line in lines:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name == b"host":
            host = value
        is_call = is_call or (name == b"content-type" and value.startswith(GRPC))
        if name not in _DROPPED:
            found.append((name, value))
    pseudo = [(b":method", method), (b":scheme", b"http"), (b":path", target), (b":authority", host)]
    return [*pseudo, *([(b"te", b"trailers")] if is_call else []), *found]
