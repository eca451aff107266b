"""A connection to a backend: one request after another, answers as they come."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Sequence
from typing import Protocol, cast

from fairway.serving.router.chunks import ChunkReader
from fairway.serving.router.head import CHUNKED, HEAD_LIMIT, AnswerHead, BadHeadError, read_answer

PIECE = 64 * 1024
"""Bytes that are read from a connection at once, at most."""
WRITE_LIMIT = 64 * 1024
"""Bytes that wait to be written to a connection; when there are more, nothing more is read for it."""
READ = memoryview(bytearray(PIECE))
"""Where every connection of the process reads into; what was read is copied out before the next one reads."""


class Asker(Protocol):
    """Who sent a request through the connection and waits for the answer."""

    def on_answer(self, head: AnswerHead, piece: bytes, ended: bool) -> None:
        """The head of the answer is there, with as much of the body as came along."""
        ...

    def on_piece(self, piece: bytes, ended: bool) -> None:
        """More of the body."""
        ...

    def on_lost(self, problem: Exception | None, unread: bool) -> None:
        """The connection ended before the answer did. `unread`: the backend never took the whole request from the socket."""
        ...

    def on_full(self) -> None:
        """Nothing more should be sent for now."""
        ...

    def on_room(self) -> None:
        """There is room again."""
        ...


class Channel(Protocol):
    """What a request goes to its backend by: a connection of its own, or a stream of one that is shared."""

    began: bool
    """Some of the answer has come."""
    lost: bool
    """It is closed, or about to be: no request may be sent on it."""

    def ask(self, asker: Asker, head: bytes, body: Sequence[bytes], *, length: int, bodiless: bool, whole: bool) -> None:
        """Send the head of a request and what there is of its body. `length`: as the head says; `whole`: that is all."""
        ...

    def send(self, wire: bytes, *, last: bool) -> None:
        """More of the body."""
        ...

    def hold_back(self) -> None:
        """Read nothing for now: who gets the answer is slow."""
        ...

    def go_on(self) -> None:
        """Read again."""
        ...

    def give_up(self) -> None:
        """The answer is not wanted any more."""
        ...

    def close(self) -> None:
        """Its answer has ended, and no other request follows."""
        ...


class Upstream(asyncio.BufferedProtocol):
    """One connection. `asker` is set while a request is under way."""

    __slots__ = (
        "_bodiless", "_chunks", "_ended", "_head", "_keep", "_left", "_measured", "_owed", "_raw", "_transport", "asker", "began",
        "idle_since", "lost", "reused",
    )  # fmt: skip

    def __init__(self) -> None:
        self.asker: Asker | None = None
        self.reused = False
        """It has carried a request before."""
        self.began = False
        """Some of the answer has come."""
        self.lost = False
        """It is closed, or about to be: no request may be sent on it."""
        self.idle_since = 0.0
        self._raw = b""
        self._head: AnswerHead | None = None
        self._chunks: ChunkReader | None = None
        self._left = 0
        self._owed = 0
        """Bytes of the request's body that were announced and not sent yet; 0 for a body in chunks."""
        self._measured = False
        self._ended = False
        """The last piece of the request was sent."""
        self._keep = False
        self._bodiless = False
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)

    def ask(self, asker: Asker, head: bytes, body: Sequence[bytes], *, length: int, bodiless: bool, whole: bool) -> None:
        """Send the head of a request and what there is of its body. `length`: as the head says; `whole`: that is all."""
        self.asker = asker
        self.began = False
        size = sum(map(len, body))
        self._measured = length >= 0
        self._owed = length - size if self._measured else 0
        self._ended = whole
        self._bodiless = bodiless
        if size <= PIECE:
            self._transport.write(b"".join((head, *body)) if size else head)
        else:
            # The pieces themselves, not a copy of them.
            self._transport.writelines([head, *body])

    def send(self, wire: bytes, *, last: bool) -> None:
        """More of the body."""
        if self._measured:
            self._owed -= len(wire)
        self._ended = last
        if wire:
            self._transport.write(wire)

    def hold_back(self) -> None:
        """Read nothing for now: who gets the answer is slow."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def give_up(self) -> None:
        """The answer is not wanted any more: close at once, so that the backend sees it."""
        self.asker = None
        self.lost = True
        self._transport.abort()

    def close(self) -> None:
        """Close a connection whose answer has ended. What was not sent yet is not sent any more: it might never be read."""
        self.asker = None
        self.lost = True
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    @property
    def is_reusable(self) -> bool:
        """Whether the next request may follow after an answer has ended.

        Only when the backend's answer was exactly its length, and every byte of the request that its head announces was
        handed to the kernel. Otherwise the backend would take the next request for the rest of this one.
        """
        sent_all = self._ended and not self._owed and not self._transport.get_write_buffer_size()
        return self._keep and sent_all and not self.lost

    def is_quiet(self) -> bool:
        """Whether an idle connection has neither ended nor received a byte that has not been read yet."""
        if self.lost or self._transport.is_closing():
            return False
        pipe = self._transport.get_extra_info("socket")
        looking = select.poll()
        looking.register(pipe.fileno(), select.POLLIN)
        return not looking.poll(0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_LIMIT)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read into."""
        return READ

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        self.data_received(bytes(READ[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Some of an answer."""
        asker = self.asker
        if asker is None:
            # Bytes that answer no request: the next request on this connection would take them for its answer.
            self.give_up()
            return
        self.began = True
        try:
            if self._head is None:
                self._take_head(asker, data)
            else:
                piece, ended = self._take_body(data)
                self._pass_on(asker, piece, ended)
        except BadHeadError as problem:
            self._fail(asker, problem)

    def eof_received(self) -> bool:
        """The backend closes; the rest is done when the connection is lost."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        unread = isinstance(exc, ConnectionResetError | BrokenPipeError) or has_error(self._transport)
        self.lost = True
        asker, self.asker = self.asker, None
        if asker is None:
            return
        head = self._head
        if head is not None and head.length < CHUNKED and exc is None:
            self._keep = False
            asker.on_piece(b"", True)
        else:
            asker.on_lost(exc, unread)

    def pause_writing(self) -> None:
        """The backend reads slowly."""
        if self.asker is not None:
            self.asker.on_full()

    def resume_writing(self) -> None:
        """It has caught up."""
        if self.asker is not None:
            self.asker.on_room()

    def _take_head(self, asker: Asker, data: bytes) -> None:
        data = self._raw + data if self._raw else data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._raw = data
            if len(data) > HEAD_LIMIT:
                raise BadHeadError(502, "the head of the backend's answer is too long")
            return
        self._raw = b""
        head = read_answer(data[: end + 4], bodiless=self._bodiless)
        rest = data[end + 4 :]
        if head.status < 200:
            if head.status == 101:
                raise BadHeadError(502, "the backend changed to another protocol without being asked")
            if rest:
                self._take_head(asker, rest)
            return
        self._head = head
        self._keep = head.keep_alive
        self._left = 0 if head.bodiless else head.length
        self._chunks = ChunkReader(502) if self._left == CHUNKED else None
        piece, ended = self._take_body(rest)
        if ended:
            self._head = None
        asker_now = self.asker
        if ended:
            self.asker = None
        if asker_now is not None:
            asker_now.on_answer(head, piece, ended)

    def _take_body(self, data: bytes) -> tuple[bytes, bool]:
        """The content of some bytes of the body, and whether that is all of it."""
        left = self._left
        if left >= 0:
            if len(data) > left:
                self._keep = False
                data = data[:left]
            self._left = left - len(data)
            return data, not self._left
        if self._chunks is not None:
            piece = self._chunks.feed(data)
            if self._chunks.done and self._chunks.rest:
                self._keep = False
            return piece, self._chunks.done
        self._keep = False
        return data, False

    def _pass_on(self, asker: Asker, piece: bytes, ended: bool) -> None:
        if ended:
            self._head = None
            self.asker = None
        if piece or ended:
            asker.on_piece(piece, ended)

    def _fail(self, asker: Asker, problem: BadHeadError) -> None:
        self.give_up()
        asker.on_lost(problem, False)


def has_error(transport: asyncio.BaseTransport) -> bool:
    """Whether the kernel knows that what was sent last did not arrive: the other side had closed before.

    A peer that closed first answers what comes after with a reset; the end of its stream is read before that, so that only
    the socket's pending error shows it.
    """
    pipe = transport.get_extra_info("socket")
    try:
        return bool(pipe is not None and pipe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    except OSError:
        return False
