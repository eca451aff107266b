"""A connection to a backend: one request after another, with responses passed on as they arrive."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Sequence
from typing import Protocol, cast

from fairway.serving.router.chunked_body import ChunkedBodyReader
from fairway.serving.router.message_head import CHUNKED, HEAD_LIMIT, BadHeadError, ResponseHead, read_answer

PIECE = 64 * 1024
"""Limit on the bytes read from a connection at once."""
WRITE_LIMIT = 64 * 1024
"""Limit on the bytes that wait to be written to a connection; above it, reading from the other side pauses."""
READ = memoryview(bytearray(PIECE))
"""The read buffer of all connections of the process; input is copied out of it before the next read."""


class BackendRequester(Protocol):
    """The sender of a request, which receives the response."""

    def on_answer(self, head: ResponseHead, piece: bytes, ended: bool) -> None:
        """Take the head of the response, with as much of the body as came along."""
        ...

    def on_piece(self, piece: bytes, ended: bool) -> None:
        """Take more of the body."""
        ...

    def on_lost(self, problem: Exception | None, unread: bool) -> None:
        """Handle the early end of the connection. `unread`: the backend never took the whole request from the socket."""
        ...

    def on_full(self) -> None:
        """Send nothing more for now."""
        ...

    def on_room(self) -> None:
        """Send again: there is room."""
        ...


class BackendChannel(Protocol):
    """Carries a request to its backend: a connection of its own, or a stream of a shared one."""

    began: bool
    """Whether part of the response has arrived."""
    lost: bool
    """Whether it is closed, or about to be: no request may be sent on it."""

    def ask(
        self, asker: BackendRequester, head: bytes, body: Sequence[bytes], *, length: int, bodiless: bool, whole: bool
    ) -> None:
        """Send the head of a request and the body so far. `length` is the declared one; `whole`: the body is complete."""
        ...

    def send(self, wire: bytes, *, last: bool) -> None:
        """Send more of the body."""
        ...

    def hold_back(self) -> None:
        """Pause reading: the receiver of the response is slow."""
        ...

    def go_on(self) -> None:
        """Resume reading."""
        ...

    def give_up(self) -> None:
        """Abandon the request: its response is no longer needed."""
        ...

    def close(self) -> None:
        """Close after the response: no other request follows."""
        ...


class Http1BackendConnection(asyncio.BufferedProtocol):
    """One connection. `asker` is set while a request is in flight."""

    __slots__ = (
        "_bodiless", "_chunks", "_ended", "_head", "_keep", "_left", "_measured", "_owed", "_raw", "_transport", "asker", "began",
        "idle_since", "lost", "reused",
    )  # fmt: skip

    def __init__(self) -> None:
        self.asker: BackendRequester | None = None
        self.reused = False
        """Whether it has carried a request before."""
        self.began = False
        """Whether part of the response has arrived."""
        self.lost = False
        """Whether it is closed, or about to be: no request may be sent on it."""
        self.idle_since = 0.0
        self._raw = b""
        self._head: ResponseHead | None = None
        self._chunks: ChunkedBodyReader | None = None
        self._left = 0
        self._owed = 0
        """Bytes of the request's body that were announced and not sent yet; 0 for a chunked body."""
        self._measured = False
        self._ended = False
        """Whether the last piece of the request was sent."""
        self._keep = False
        self._bodiless = False
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)

    def ask(
        self, asker: BackendRequester, head: bytes, body: Sequence[bytes], *, length: int, bodiless: bool, whole: bool
    ) -> None:
        """Send the head of a request and the body so far. `length` is the declared one; `whole`: the body is complete."""
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
            # Write the pieces themselves, not a copy of them.
            self._transport.writelines([head, *body])

    def send(self, wire: bytes, *, last: bool) -> None:
        """Send more of the body."""
        if self._measured:
            self._owed -= len(wire)
        self._ended = last
        if wire:
            self._transport.write(wire)

    def hold_back(self) -> None:
        """Pause reading: the receiver of the response is slow."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Resume reading."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def give_up(self) -> None:
        """Abandon the request and close at once, so that the backend notices."""
        self.asker = None
        self.lost = True
        self._transport.abort()

    def close(self) -> None:
        """Close a connection whose response has ended. Unsent data is discarded: the backend might never read it."""
        self.asker = None
        self.lost = True
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow on this connection after the response.

        Only if the backend's response had exactly its declared length, and every byte of the request that its head announced
        was handed to the kernel. Otherwise the backend would take the next request for the rest of this one.
        """
        sent_all = self._ended and not self._owed and not self._transport.get_write_buffer_size()
        return self._keep and sent_all and not self.lost

    def is_quiet(self) -> bool:
        """Return whether an idle connection is open and has no unread input."""
        if self.lost or self._transport.is_closing():
            return False
        pipe = self._transport.get_extra_info("socket")
        poller = select.poll()
        poller.register(pipe.fileno(), select.POLLIN)
        return not poller.poll(0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the opened transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_LIMIT)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into."""
        return READ

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were read into the buffer."""
        self.data_received(bytes(READ[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Take part of a response."""
        asker = self.asker
        if asker is None:
            # No request is in flight: the next one on this connection would take these bytes for its response.
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
        """Let the connection close; `connection_lost` does the rest."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request in flight: the connection is closed."""
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
        """Pause the sender of the request: the backend reads slowly."""
        if self.asker is not None:
            self.asker.on_full()

    def resume_writing(self) -> None:
        """Resume the sender of the request: the backend has caught up."""
        if self.asker is not None:
            self.asker.on_room()

    def _take_head(self, asker: BackendRequester, data: bytes) -> None:
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
                raise BadHeadError(502, "the backend switched protocols although the request did not ask for it")
            if rest:
                self._take_head(asker, rest)
            return
        self._head = head
        self._keep = head.keep_alive
        self._left = 0 if head.bodiless else head.length
        self._chunks = ChunkedBodyReader(502) if self._left == CHUNKED else None
        piece, ended = self._take_body(rest)
        if ended:
            self._head = None
        asker_now = self.asker
        if ended:
            self.asker = None
        if asker_now is not None:
            asker_now.on_answer(head, piece, ended)

    def _take_body(self, data: bytes) -> tuple[bytes, bool]:
        """Return the content of these bytes of the body, and whether the body is complete."""
        remaining = self._left
        if remaining >= 0:
            if len(data) > remaining:
                self._keep = False
                data = data[:remaining]
            self._left = remaining - len(data)
            return data, not self._left
        if self._chunks is not None:
            piece = self._chunks.feed(data)
            if self._chunks.done and self._chunks.rest:
                self._keep = False
            return piece, self._chunks.done
        self._keep = False
        return data, False

    def _pass_on(self, asker: BackendRequester, piece: bytes, ended: bool) -> None:
        if ended:
            self._head = None
            self.asker = None
        if piece or ended:
            asker.on_piece(piece, ended)

    def _fail(self, asker: BackendRequester, problem: BadHeadError) -> None:
        self.give_up()
        asker.on_lost(problem, False)


def has_error(transport: asyncio.BaseTransport) -> bool:
    """Return whether the kernel reports that the last data sent did not arrive, because the peer had closed before.

    A peer that has closed answers later data with a reset. The end of its stream is read before that, so that only the socket's
    pending error shows it.
    """
    pipe = transport.get_extra_info("socket")
    try:
        return bool(pipe is not None and pipe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    except OSError:
        return False
