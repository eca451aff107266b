"""The half of a connection of HTTP/2 that sends: what goes out at once, what waits for the other side's windows, and when."""

from __future__ import annotations

from collections.abc import Callable

from fairway.serving.http2 import frames
from fairway.serving.http2.errors import Code
from fairway.serving.http2.frames import FRAME_SIZE, HEAD, WINDOW
from fairway.serving.http2.glitches import Glitches
from fairway.serving.http2.stream import Stream

_CLOSED = 64
"""Streams that ended here lately; frames that were under way for them are passed over."""


class Outbound:
    """Frames out, within the other side's windows; a frame of each stream by turns where they wait."""

    def __init__(
        self, write: Callable[[bytes], None], most_streams: int, window: int, glitches: Glitches, *, server: bool
    ) -> None:
        """`most_streams` and `window`: what the other side may have open and may send."""
        self.streams: dict[int, Stream] = {}
        self.blocked = False
        """The socket takes no more."""
        self._write = write
        self._server = server
        self._glitches = glitches
        self._remembered = _CLOSED + most_streams
        self._windows = WINDOW
        """Bytes that may be sent on the connection."""
        self._window = window
        self._left = window
        """Bytes that the other side may send."""
        self._taken = 0
        self._out: list[bytes] = []
        self._receiving = False
        self._urgent = False
        """What is gathered is more than answers to PING."""
        self._closed: dict[int, None] = {}
        self._waiting: dict[Stream, None] = {}
        """Streams with bytes that wait for room, by turns."""

    def headers(self, stream: Stream, block: bytes, *, ended: bool) -> None:
        """A block of headers, after what waits of the same stream."""
        if stream.said_all:
            return
        stream.said_all = ended
        if stream.queued and ended:
            stream.trailers = block
            return
        self._send(frames.header_frames(stream.number, block, ended=ended))
        if ended:
            self._finish(stream)

    def data(self, stream: Stream, piece: bytes, *, ended: bool) -> None:
        """Some of a body: sent as far as the windows allow, the rest waits."""
        if stream.said_all:
            return
        stream.said_all = ended
        size = len(piece)
        fits = not size or (size <= stream.window and size <= self._windows)
        if not stream.queued and not self.blocked and fits:
            stream.window -= size
            self._windows -= size
            self._glitches.forgive()
            self._send_data(stream.number, piece, ended)
            if ended:
                self._finish(stream)
            return
        if piece or ended:
            stream.add(piece)
            self._waiting[stream] = None
            self.pump()

    def unary(self, stream: Stream, head: bytes, piece: bytes, trailers: bytes) -> None:
        """A whole message with trailers in one write, where the windows allow it."""
        size = len(piece)
        if stream.said_all:
            return
        if stream.queued or self.blocked or size > FRAME_SIZE or size > stream.window or size > self._windows:
            self.headers(stream, head, ended=False)
            self.data(stream, piece, ended=False)
            self.headers(stream, trailers, ended=True)
            return
        stream.window -= size
        self._windows -= size
        stream.said_all = True
        number, pack = stream.number, HEAD.pack
        self._send(
            b"".join(
                (
                    pack(len(head) >> 8, len(head) & 255, frames.HEADERS, frames.END_HEADERS, number),
                    head,
                    pack(size >> 8, size & 255, frames.DATA, 0, number),
                    piece,
                    pack(len(trailers) >> 8, len(trailers) & 255, frames.HEADERS, 5, number),
                    trailers,
                )
            )
        )
        self._finish(stream)

    def reset(self, stream: Stream, code: Code) -> bool:
        """End a stream at once; False when it has ended before."""
        if self.streams.get(stream.number) is not stream:
            return False
        self.forget(stream)
        self._send(frames.rst_stream(stream.number, code))
        return True

    def goodbye(self, last: int, code: Code = Code.NO_ERROR, reason: str = "") -> None:
        """Take no stream after this one."""
        self._send(frames.goaway(last, code, reason))

    def pump(self) -> None:
        """Send what waits, a frame of each stream by turns, as far as the windows and the socket allow."""
        waiting = self._waiting
        while waiting and self._windows > 0 and not self.blocked:
            stream = next(iter(waiting))
            del waiting[stream]
            if stream.number not in self.streams:
                continue
            most = min(stream.window, self._windows, FRAME_SIZE)
            if most <= 0 and stream.queued_size:
                continue
            piece = stream.pop(most)
            stream.window -= len(piece)
            self._windows -= len(piece)
            done = not stream.queued
            self._glitches.forgive()
            self._send_data(stream.number, piece, done and stream.said_all and stream.trailers is None)
            if not done:
                waiting[stream] = None
            elif stream.said_all:
                if stream.trailers is not None:
                    self._send(frames.header_frames(stream.number, stream.trailers, ended=True))
                self._finish(stream)
            stream.on_sent()

    def flush(self) -> None:
        """Write what was gathered while bytes were received."""
        out = self._out
        self._urgent = False
        if out:
            self._out = []
            self._write(out[0] if len(out) == 1 else b"".join(out))

    def flush_soon(self) -> None:
        """Only answers to PING wait. Clients of gRPC send one for every answer; with the next answer it costs no write."""
        self.flush()

    def forget(self, stream: Stream) -> None:
        """It is over, on both sides."""
        if self.streams.pop(stream.number, None) is not None:
            self._close(stream.number)
            self._waiting.pop(stream, None)
            stream.drop()
            owed, stream.owed = stream.owed, 0
            self._give_room(owed)

    def _close(self, number: int) -> None:
        closed = self._closed
        closed[number] = None
        if len(closed) > self._remembered:
            del closed[next(iter(closed))]

    def _finish(self, stream: Stream) -> None:
        """All of this side's message was sent."""
        self._glitches.completed()
        if stream.heard_all:
            self.forget(stream)
        elif self._server:
            # The rest of the request is of no use to the answer any more (RFC 9113, 8.1).
            self.reset(stream, Code.NO_ERROR)

    def _send_data(self, number: int, piece: bytes, ended: bool) -> None:
        flags = frames.END_STREAM if ended else 0
        size = len(piece)
        if size <= FRAME_SIZE:
            self._send(HEAD.pack(size >> 8, size & 255, frames.DATA, flags, number) + piece)
            return
        view = memoryview(piece)
        for start in range(0, size, FRAME_SIZE):
            part = view[start : start + FRAME_SIZE]
            last = flags if start + FRAME_SIZE >= size else 0
            self._send(HEAD.pack(len(part) >> 8, len(part) & 255, frames.DATA, last, number) + part)

    def _send(self, wire: bytes) -> None:
        if self._receiving:
            self._urgent = True
            self._out.append(wire)
        elif self._out:
            self._out.append(wire)
            self.flush()
        else:
            self._write(wire)

    def _give_room(self, size: int) -> None:
        self._taken += size
        if self._taken * 2 >= self._window:
            self._left += self._taken
            self._send(frames.window_update(0, self._taken))
            self._taken = 0
