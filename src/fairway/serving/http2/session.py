"""One connection of HTTP/2 without its socket: frames in, events out; frames out within the other side's windows.

What the other side can make this one hold or do is bounded: the length of a frame, of a header block and of its headers; frames
that bring nothing (`Glitches`); streams at once; bytes received and not taken (the windows); bytes to send that the other side
does not take (`Stream.queued`, by back pressure to where they come from).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairway.serving.http2 import frames
from fairway.serving.http2.errors import Code, SessionError, StreamError
from fairway.serving.http2.frames import FRAME_SIZE, HEAD, HEAD_SIZE, PREFACE, WINDOW
from fairway.serving.http2.glitches import Glitches
from fairway.serving.http2.hpack import Decoder, Headers, TooManyHeadersError
from fairway.serving.http2.stream import Stream

CONTINUATIONS = 16
"""Frames of one header block."""
_CLOSED = 64
"""Streams that ended here lately; frames that were under way for them are passed over."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What this side allows the other."""

    streams: int = 128
    """At once."""
    stream_window: int = 128 * 1024
    """Bytes of one stream that may come and were not passed on yet."""
    window: int = 256 * 1024
    """The same of the whole connection."""
    head: int = 32 * 1024
    """Bytes of names and values of one block of headers, and of the block itself."""
    headers: int = 128


class Session:
    """The state of one connection. What a subclass overrides is called while bytes are received."""

    def __init__(self, terms: Terms, write: Callable[[bytes], None], *, server: bool, now: Callable[[], float]) -> None:
        self.terms = terms
        self.streams: dict[int, Stream] = {}
        self.most_streams = 100 if not server else 0
        """How many streams the other side allows; asked by clients only."""
        self.last = 0
        """The newest stream that the client began."""
        self.said_goodbye = False
        """GOAWAY was sent or received: no stream is begun any more."""
        self.blocked = False
        """The socket takes no more."""
        self._write = write
        self._server = server
        self._glitches = Glitches(now)
        self._raw = b""
        self._preface = len(PREFACE) if server else 0
        """Bytes of the preface that are still to come."""
        self._decoder = Decoder(terms.head, terms.headers)
        self._block: list[bytes] | None = None
        self._block_size = 0
        self._block_stream = 0
        self._block_ends = False
        self._windows = WINDOW
        """Bytes that may be sent on the connection."""
        self._initial_window = WINDOW
        self._left = terms.window
        """Bytes that the other side may send."""
        self._taken = 0
        self._settled = False
        """The first SETTINGS of the other side has come."""
        self._out: list[bytes] = []
        self._receiving = False
        self._urgent = False
        """What is gathered is more than answers to PING."""
        self._closed: dict[int, None] = {}
        self._waiting: dict[Stream, None] = {}
        """Streams with bytes that wait for room, by turns."""
        self.failed = False

    # What a subclass does.

    def begin_stream(self, number: int) -> Stream:
        """A client began a stream."""
        raise NotImplementedError

    def on_headers(self, stream: Stream, headers: Headers, ended: bool) -> None:
        """The head of a message, or its trailers."""
        raise NotImplementedError

    def on_data(self, stream: Stream, piece: bytes, ended: bool) -> None:
        """Some of a body."""
        raise NotImplementedError

    def on_reset(self, stream: Stream, code: int) -> None:
        """The other side, or a mistake of it, ended a stream; it is no longer among the streams."""
        raise NotImplementedError

    def on_too_many_headers(self, stream: Stream) -> None:
        """The headers are longer than allowed."""
        self.reset(stream, Code.ENHANCE_YOUR_CALM)

    def on_goodbye(self, last: int) -> None:
        """The other side begins, or takes, no stream after this one."""

    def on_failure(self, problem: SessionError) -> None:
        """The connection cannot go on; GOAWAY was written."""

    # Receiving.

    @property
    def in_head(self) -> bool:
        """Whether a frame or a block of headers has begun and not ended."""
        return bool(self._raw) or self._block is not None or self._preface > 0

    def greet(self) -> None:
        """Write what each side sends first."""
        terms = self.terms
        values = {frames.INITIAL_WINDOW_SIZE: terms.stream_window, frames.MAX_HEADER_LIST_SIZE: terms.head}
        values |= {frames.MAX_CONCURRENT_STREAMS: terms.streams} if self._server else {frames.ENABLE_PUSH: 0}
        hello = (b"" if self._server else PREFACE) + frames.settings(values)
        self._send(hello + frames.window_update(0, terms.window - WINDOW))

    def receive(self, data: bytes) -> None:
        """Some bytes of the other side. Whatever they are, this raises nothing."""
        if self.failed:
            return
        self._receiving = True
        try:
            self._read(self._raw + data if self._raw else data)
        except SessionError as problem:
            self.fail(problem)
        finally:
            self._receiving = False
            if self._urgent:
                self.flush()
            elif self._out:
                self.flush_soon()

    def fail(self, problem: SessionError) -> None:
        """End the connection."""
        self.failed = self.said_goodbye = True
        self._raw = b""
        self._block = None
        self._out.append(frames.goaway(self.last, problem.code, problem.reason))
        self.flush()
        self.on_failure(problem)

    def _read(self, data: bytes) -> None:
        at, end = 0, len(data)
        if self._preface:
            at = min(end, self._preface)
            done = len(PREFACE) - self._preface
            if data[:at] != PREFACE[done : done + at]:
                raise SessionError(Code.PROTOCOL_ERROR, "the connection does not begin as HTTP/2")
            self._preface -= at
        while end - at >= HEAD_SIZE:
            high, low, kind, flags, number = HEAD.unpack_from(data, at)
            size = high << 8 | low
            if size > FRAME_SIZE:
                message = f"a frame of {size} bytes, where {FRAME_SIZE} are allowed"
                raise SessionError(Code.FRAME_SIZE_ERROR, message)
            stop = at + HEAD_SIZE + size
            if stop > end:
                break
            self._take(kind, flags, number & 0x7FFFFFFF, data[at + HEAD_SIZE : stop])
            at = stop
            if self.failed:
                return
        self._raw = data[at:]

    def _take(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if self._block is not None and (kind != frames.CONTINUATION or number != self._block_stream):
            raise SessionError(Code.PROTOCOL_ERROR, "a block of headers is interrupted")
        if not self._settled and kind != frames.SETTINGS:
            raise SessionError(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == frames.DATA:
            self._take_data(flags, number, content)
        elif kind == frames.HEADERS:
            self._take_headers(flags, number, content)
        elif kind == frames.CONTINUATION:
            self._continue(flags, content)
        elif kind == frames.WINDOW_UPDATE:
            self._take_window(number, content)
        elif kind == frames.RST_STREAM:
            self._take_reset(number, content)
        else:
            self._glitches.add()
            self._take_rare(kind, flags, number, content)

    def _take_data(self, flags: int, number: int, content: bytes) -> None:
        size = len(content)
        self._left -= size
        if self._left < 0:
            raise SessionError(Code.FLOW_CONTROL_ERROR, "more bytes than the window of the connection has")
        if flags & frames.PADDED:
            content = _unpadded(content)
        ended = bool(flags & frames.END_STREAM)
        stream = self.streams.get(number)
        if not content and not ended:
            self._glitches.add()
        if stream is None or stream.heard_all or not stream.has_head:
            self._give_room(size)
            self._refuse_data(stream, number)
            return
        self._give_room(size - len(content))
        stream.left -= len(content)
        if stream.left < 0:
            raise SessionError(Code.FLOW_CONTROL_ERROR, "more bytes than the window of a stream has")
        stream.heard_all = ended
        self._give(self.on_data, stream, content, ended)
        if content:
            self._glitches.forgive()
            self._taken_of(stream, len(content))

    def _refuse_data(self, stream: Stream | None, number: int) -> None:
        """DATA where none may come."""
        if stream is None:
            self._check_known(number)
        elif stream.heard_all:
            self._break(stream, StreamError(Code.STREAM_CLOSED, "DATA after the end of a stream"))
        else:
            self._break(stream, StreamError(Code.PROTOCOL_ERROR, "DATA before the headers"))

    def _take_headers(self, flags: int, number: int, content: bytes) -> None:
        if flags & frames.PADDED:
            content = _unpadded(content)
        if flags & frames.HAS_PRIORITY:
            if len(content) < 5:
                raise SessionError(Code.FRAME_SIZE_ERROR, "HEADERS without its priority")
            content = content[5:]
        if not number or not number & 1:
            raise SessionError(Code.PROTOCOL_ERROR, "headers for a stream that no client can have begun")
        self._block_stream = number
        self._block_ends = bool(flags & frames.END_STREAM)
        if flags & frames.END_HEADERS:
            self._take_block(content)
            return
        self._block, self._block_size = [content], len(content)

    def _continue(self, flags: int, content: bytes) -> None:
        block = self._block
        if block is None:
            raise SessionError(Code.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        block.append(content)
        self._block_size += len(content)
        if self._block_size > self.terms.head or len(block) > CONTINUATIONS:
            raise SessionError(Code.ENHANCE_YOUR_CALM, "a block of headers is too long")
        if flags & frames.END_HEADERS:
            self._block = None
            self._take_block(b"".join(block))

    def _take_block(self, block: bytes) -> None:
        number, ended = self._block_stream, self._block_ends
        try:
            headers = self._decoder.decode(block)
        except TooManyHeadersError:
            headers = None
        stream = self.streams.get(number)
        if stream is None:
            stream = self._open(number)
            if stream is None:
                return
        elif stream.has_head and not ended and self._server:
            self._break(stream, StreamError(Code.PROTOCOL_ERROR, "trailers that do not end the stream"))
            return
        if stream.heard_all:
            self._break(stream, StreamError(Code.STREAM_CLOSED, "headers after the end of a stream"))
            return
        stream.heard_all = ended
        if headers is None:
            self.on_too_many_headers(stream)
            return
        self._glitches.forgive()
        self._give(self.on_headers, stream, headers, ended)

    def _open(self, number: int) -> Stream | None:
        """A stream that the client begins."""
        if not self._server or number <= self.last:
            self._check_known(number)
            return None
        self.last = number
        if self.said_goodbye or len(self.streams) >= self.terms.streams:
            self._glitches.add()
            self._close(number)
            self._send(frames.rst_stream(number, Code.REFUSED_STREAM))
            return None
        stream = self.begin_stream(number)
        self._add(stream)
        return stream

    def _add(self, stream: Stream) -> None:
        stream.window = self._initial_window
        stream.left = self.terms.stream_window
        self.streams[stream.number] = stream

    def _check_known(self, number: int) -> None:
        """Frames for streams that have ended may still be under way; others are mistakes."""
        if number > self.last or not number & 1:
            raise SessionError(Code.PROTOCOL_ERROR, "a frame for a stream that was not begun")
        self._glitches.add()
        if number not in self._closed and self._server:
            raise SessionError(Code.STREAM_CLOSED, "a frame for a stream that has ended long ago")

    def _give(self, event: Callable[..., None], stream: Stream, content: object, ended: bool) -> None:
        try:
            event(stream, content, ended)
        except StreamError as problem:
            self._break(stream, problem)

    def _break(self, stream: Stream, problem: StreamError) -> None:
        """End a stream for a mistake of the other side."""
        self._glitches.add()
        if self.reset(stream, problem.code):
            self.on_reset(stream, problem.code)

    def _take_window(self, number: int, content: bytes) -> None:
        if len(content) != 4:
            raise SessionError(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        self._glitches.add()
        more = frames.number(content)
        if not number:
            if not more or self._windows + more > frames.LARGEST_WINDOW:
                raise SessionError(Code.FLOW_CONTROL_ERROR, "the window of the connection grows by nothing, or too far")
            self._windows += more
            self.pump()
            return
        stream = self.streams.get(number)
        if stream is None:
            if number > self.last:
                raise SessionError(Code.PROTOCOL_ERROR, "a window for a stream that was not begun")
            return
        if not more or stream.window + more > frames.LARGEST_WINDOW:
            self._break(stream, StreamError(Code.FLOW_CONTROL_ERROR, "the window of a stream grows by nothing, or too far"))
            return
        stream.window += more
        if stream.queued:
            self._waiting[stream] = None
            self.pump()

    def _take_reset(self, number: int, content: bytes) -> None:
        if len(content) != 4:
            raise SessionError(Code.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        if not number or number > self.last:
            raise SessionError(Code.PROTOCOL_ERROR, "the end of a stream that was not begun")
        stream = self.streams.get(number)
        if stream is None:
            self._glitches.add()
            return
        if self._server:
            self._glitches.reset()
        self.forget(stream)
        self.on_reset(stream, int.from_bytes(content, "big"))

    def _take_rare(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if kind == frames.SETTINGS:
            self._take_settings(flags, number, content)
        elif kind == frames.PING:
            if number or len(content) != 8:
                raise SessionError(Code.FRAME_SIZE_ERROR if not number else Code.PROTOCOL_ERROR, "a PING that is none")
            if not flags & frames.ACK:
                self._out.append(frames.frame(frames.PING, frames.ACK, 0, content))
        elif kind == frames.GOAWAY:
            if number or len(content) < 8:
                raise SessionError(Code.PROTOCOL_ERROR, "a GOAWAY that is none")
            self.said_goodbye = True
            self.on_goodbye(frames.number(content))
        elif kind == frames.PUSH_PROMISE:
            raise SessionError(Code.PROTOCOL_ERROR, "PUSH_PROMISE is not allowed")
        elif kind == frames.PRIORITY and (not number or len(content) != 5):
            raise SessionError(Code.FRAME_SIZE_ERROR if number else Code.PROTOCOL_ERROR, "a PRIORITY that is none")

    def _take_settings(self, flags: int, number: int, content: bytes) -> None:
        if number or len(content) % 6 or (flags & frames.ACK and content):
            raise SessionError(Code.PROTOCOL_ERROR if number else Code.FRAME_SIZE_ERROR, "SETTINGS that are none")
        if flags & frames.ACK:
            return
        self._settled = True
        for name, value in frames.read_settings(content):
            if name == frames.INITIAL_WINDOW_SIZE:
                self._resize(value)
            elif name == frames.MAX_FRAME_SIZE and not FRAME_SIZE <= value < 1 << 24:
                raise SessionError(Code.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE is out of bounds")
            elif name == frames.ENABLE_PUSH and value > 1:
                raise SessionError(Code.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH is neither 0 nor 1")
            elif name == frames.MAX_CONCURRENT_STREAMS:
                self.most_streams = value
        self._send(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self.pump()

    def _resize(self, window: int) -> None:
        if window > frames.LARGEST_WINDOW:
            raise SessionError(Code.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE is too large")
        more = window - self._initial_window
        self._initial_window = window
        for stream in self.streams.values():
            stream.window += more
            if stream.window > frames.LARGEST_WINDOW:
                raise SessionError(Code.FLOW_CONTROL_ERROR, "the window of a stream grows too far")
            if stream.queued:
                self._waiting[stream] = None

    # Room for what comes.

    def _taken_of(self, stream: Stream, size: int) -> None:
        """So many bytes of a stream were passed on: as many may come, unless the stream is held."""
        if stream.held and stream.number in self.streams:
            stream.owed += size
            return
        self._give_room(size)
        if not stream.heard_all:
            stream.taken += size
            if stream.taken * 2 >= self.terms.stream_window:
                self._renew(stream)

    def hold(self, stream: Stream) -> None:
        """No more may come of a stream than its window has left; what comes counts for the window of the connection, too."""
        stream.held = True

    def go_on(self, stream: Stream) -> None:
        """More may come again."""
        if stream.held:
            stream.held = False
            owed, stream.owed = stream.owed, 0
            self._give_room(owed)
            stream.taken += owed
            if stream.taken and not stream.heard_all and stream.number in self.streams:
                self._renew(stream)

    def _renew(self, stream: Stream) -> None:
        stream.left += stream.taken
        self._send(frames.window_update(stream.number, stream.taken))
        stream.taken = 0

    def _give_room(self, size: int) -> None:
        self._taken += size
        if self._taken * 2 >= self.terms.window:
            self._left += self._taken
            self._send(frames.window_update(0, self._taken))
            self._taken = 0

    # Sending.

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
        if not stream.queued and not self.blocked and size <= stream.window and size <= self._windows:
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
        if len(closed) > _CLOSED + self.terms.streams:
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


def _unpadded(content: bytes) -> bytes:
    if not content or content[0] >= len(content):
        raise SessionError(Code.PROTOCOL_ERROR, "a frame is shorter than its padding")
    return content[1 : len(content) - content[0]]
