"""The sending half of an HTTP/2 connection: what is written at once, and what is queued for flow control or the socket."""

from __future__ import annotations

from collections.abc import Callable

from fairway.serving.http2 import frame
from fairway.serving.http2.abuse_limit import Http2AbuseLimit
from fairway.serving.http2.frame import FRAME_SIZE, HEAD, WINDOW
from fairway.serving.http2.http2_error import Http2ErrorCode
from fairway.serving.http2.http2_stream import Http2Stream

_CLOSED = 64
"""Number of recently closed streams to remember; late frames for them are ignored."""


class Http2FrameSender:
    """Writes frames within the peer's flow-control windows; blocked streams take turns, one frame each."""

    def __init__(
        self, write: Callable[[bytes], None], most_streams: int, window: int, glitches: Http2AbuseLimit, *, server: bool
    ) -> None:
        """Allow the peer `most_streams` concurrent streams and a receive window of `window` bytes."""
        self.streams: dict[int, Http2Stream] = {}
        self.blocked = False
        """Whether the socket accepts no more data."""
        self._write = write
        self._server = server
        self._glitches = glitches
        self._remembered = _CLOSED + most_streams
        self._windows = WINDOW
        """Bytes that may still be sent on the connection."""
        self._window = window
        self._left = window
        """Bytes that the peer may still send."""
        self._taken = 0
        self._out: list[bytes] = []
        self._receiving = False
        self._urgent = False
        """Whether the gathered frames include more than answers to PING."""
        self._closed: dict[int, None] = {}
        self._waiting: dict[Http2Stream, None] = {}
        """Streams whose queued bytes wait for a window or the socket, in the order of their turns."""

    def headers(self, stream: Http2Stream, block: bytes, *, ended: bool) -> None:
        """Send a header block, after the stream's queued data."""
        if stream.said_all:
            return
        stream.said_all = ended
        if stream.queued and ended:
            stream.trailers = block
            return
        self._send(frame.header_frames(stream.number, block, ended=ended))
        if ended:
            self._finish(stream)

    def data(self, stream: Http2Stream, piece: bytes, *, ended: bool) -> None:
        """Send part of a body as far as the windows allow, and queue the remainder."""
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

    def unary(self, stream: Http2Stream, head: bytes, piece: bytes, trailers: bytes) -> None:
        """Send a whole message with trailers in one write, if the windows allow it."""
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
                    pack(len(head) >> 8, len(head) & 255, frame.HEADERS, frame.END_HEADERS, number),
                    head,
                    pack(size >> 8, size & 255, frame.DATA, 0, number),
                    piece,
                    pack(len(trailers) >> 8, len(trailers) & 255, frame.HEADERS, 5, number),
                    trailers,
                )
            )
        )
        self._finish(stream)

    def reset(self, stream: Http2Stream, code: Http2ErrorCode) -> bool:
        """Reset a stream at once; return False when it has ended already."""
        if self.streams.get(stream.number) is not stream:
            return False
        self.forget(stream)
        self._send(frame.rst_stream(stream.number, code))
        return True

    def goodbye(self, last: int, code: Http2ErrorCode = Http2ErrorCode.NO_ERROR, reason: str = "") -> None:
        """Send GOAWAY: no stream after `last` is accepted."""
        self._send(frame.goaway(last, code, reason))

    def pump(self) -> None:
        """Send queued data, one frame of each stream in turn, as far as the windows and the socket allow."""
        waiting = self._waiting
        while waiting and self._windows > 0 and not self.blocked:
            stream = next(iter(waiting))
            del waiting[stream]
            if stream.number not in self.streams:
                continue
            room = min(stream.window, self._windows, FRAME_SIZE)
            if room <= 0 and stream.queued_size:
                continue
            piece = stream.pop(room)
            stream.window -= len(piece)
            self._windows -= len(piece)
            done = not stream.queued
            self._glitches.forgive()
            self._send_data(stream.number, piece, done and stream.said_all and stream.trailers is None)
            if not done:
                waiting[stream] = None
            elif stream.said_all:
                if stream.trailers is not None:
                    self._send(frame.header_frames(stream.number, stream.trailers, ended=True))
                self._finish(stream)
            stream.on_sent()

    def flush(self) -> None:
        """Write the frames gathered while bytes were received."""
        out = self._out
        self._urgent = False
        if out:
            self._out = []
            self._write(out[0] if len(out) == 1 else b"".join(out))

    def flush_soon(self) -> None:
        """Flush when only answers to PING are gathered; a subclass may delay this.

        gRPC clients send a PING for every answer; written together with the next answer, its answer costs no extra write.
        """
        self.flush()

    def forget(self, stream: Http2Stream) -> None:
        """Remove a stream that has ended on both sides."""
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

    def _finish(self, stream: Http2Stream) -> None:
        """Handle the end of this side's message."""
        self._glitches.completed()
        if stream.heard_all:
            self.forget(stream)
        elif self._server:
            # The answer no longer depends on the rest of the request (RFC 9113, 8.1).
            self.reset(stream, Http2ErrorCode.NO_ERROR)

    def _send_data(self, number: int, piece: bytes, ended: bool) -> None:
        flags = frame.END_STREAM if ended else 0
        size = len(piece)
        if size <= FRAME_SIZE:
            self._send(HEAD.pack(size >> 8, size & 255, frame.DATA, flags, number) + piece)
            return
        view = memoryview(piece)
        for start in range(0, size, FRAME_SIZE):
            part = view[start : start + FRAME_SIZE]
            last = flags if start + FRAME_SIZE >= size else 0
            self._send(HEAD.pack(len(part) >> 8, len(part) & 255, frame.DATA, last, number) + part)

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
            self._send(frame.window_update(0, self._taken))
            self._taken = 0
