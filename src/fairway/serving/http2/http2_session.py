"""One HTTP/2 connection without its socket: received bytes become events, and answers become frames within the peer's windows.

What the peer can make this side hold or do is bounded: the size of a frame, of a header block and of its headers; frames without
effect (`Http2AbuseLimit`); concurrent streams; bytes received and not consumed (the windows); bytes to send that the peer does
not accept (`Http2Stream.queued`, by back pressure on their source).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairway.serving.http2 import frame
from fairway.serving.http2.abuse_limit import Http2AbuseLimit
from fairway.serving.http2.frame import FRAME_SIZE, HEAD, HEAD_SIZE, PREFACE, WINDOW
from fairway.serving.http2.frame_sender import Http2FrameSender
from fairway.serving.http2.hpack import Headers, HpackDecoder, TooManyHeadersError
from fairway.serving.http2.http2_error import Http2ConnectionError, Http2ErrorCode, Http2StreamError
from fairway.serving.http2.http2_stream import Http2Stream

CONTINUATIONS = 16
"""Maximum frames of one header block."""


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """The limits for the peer."""

    streams: int = 128
    """Maximum concurrent streams."""
    stream_window: int = 128 * 1024
    """Maximum bytes of one stream that were received and not consumed yet."""
    window: int = 256 * 1024
    """The same for the whole connection."""
    head: int = 32 * 1024
    """Maximum bytes of names and values in one header block, and of the block itself."""
    headers: int = 128


class Http2Session(Http2FrameSender):
    """The state of one connection. The methods that a subclass overrides are called while bytes are received."""

    def __init__(self, terms: Http2Limits, write: Callable[[bytes], None], *, server: bool, now: Callable[[], float]) -> None:
        super().__init__(write, terms.streams, terms.window, Http2AbuseLimit(now), server=server)
        self.terms = terms
        self.most_streams = 100 if not server else 0
        """Concurrent streams that the peer allows; used by clients only."""
        self.last = 0
        """The highest stream number that the client has begun."""
        self.said_goodbye = False
        """Whether GOAWAY was sent or received: no stream is begun any more."""
        self._raw = b""
        self._preface = len(PREFACE) if server else 0
        """Bytes of the preface not received yet."""
        self._decoder = HpackDecoder(terms.head, terms.headers)
        self._block: list[bytes] | None = None
        self._block_size = 0
        self._block_stream = 0
        self._block_ends = False
        self._initial_window = WINDOW
        self._settled = False
        """Whether the peer's first SETTINGS was received."""
        self.failed = False

    # Events, for subclasses to override.

    def begin_stream(self, number: int) -> Http2Stream:
        """Create the stream that a client has begun."""
        raise NotImplementedError

    def on_headers(self, stream: Http2Stream, headers: Headers, ended: bool) -> None:
        """Handle the headers of a message, or its trailers."""
        raise NotImplementedError

    def on_data(self, stream: Http2Stream, piece: bytes, ended: bool) -> None:
        """Handle part of a body."""
        raise NotImplementedError

    def on_reset(self, stream: Http2Stream, code: int) -> None:
        """Handle a stream that was reset, by the peer or for an error of the peer. It is already removed from `streams`."""
        raise NotImplementedError

    def on_too_many_headers(self, stream: Http2Stream) -> None:
        """Handle a new stream whose headers exceed the limits: by default, reset it."""
        self.reset(stream, Http2ErrorCode.ENHANCE_YOUR_CALM)

    def on_goodbye(self, last: int) -> None:
        """Handle GOAWAY: the peer neither begins nor accepts a stream after `last`."""

    def on_failure(self, problem: Http2ConnectionError) -> None:
        """Handle the failure of the connection; GOAWAY has been written."""

    # Receiving.

    @property
    def in_head(self) -> bool:
        """Whether the preface, a frame or a header block has begun and not ended."""
        return bool(self._raw) or self._block is not None or self._preface > 0

    def greet(self) -> None:
        """Write the preface, if this is a client, and SETTINGS."""
        terms = self.terms
        values = {frame.INITIAL_WINDOW_SIZE: terms.stream_window, frame.MAX_HEADER_LIST_SIZE: terms.head}
        values |= {frame.MAX_CONCURRENT_STREAMS: terms.streams} if self._server else {frame.ENABLE_PUSH: 0}
        hello = (b"" if self._server else PREFACE) + frame.settings(values)
        self._send(hello + frame.window_update(0, terms.window - WINDOW))

    def receive(self, data: bytes) -> None:
        """Process bytes from the peer. Never raises, whatever they are."""
        if self.failed:
            return
        self._receiving = True
        try:
            self._read(self._raw + data if self._raw else data)
        except Http2ConnectionError as problem:
            self.fail(problem)
        finally:
            self._receiving = False
            if self._urgent:
                self.flush()
            elif self._out:
                self.flush_soon()

    def fail(self, problem: Http2ConnectionError) -> None:
        """End the connection with GOAWAY."""
        self.failed = self.said_goodbye = True
        self._raw = b""
        self._block = None
        self._out.append(frame.goaway(self.last, problem.code, problem.reason))
        self.flush()
        self.on_failure(problem)

    def _read(self, data: bytes) -> None:
        position, end = 0, len(data)
        if self._preface:
            position = min(end, self._preface)
            done = len(PREFACE) - self._preface
            if data[:position] != PREFACE[done : done + position]:
                raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "the connection does not begin with the HTTP/2 preface")
            self._preface -= position
        while end - position >= HEAD_SIZE:
            high, low, kind, flags, number = HEAD.unpack_from(data, position)
            size = high << 8 | low
            if size > FRAME_SIZE:
                message = f"a frame of {size} bytes, where {FRAME_SIZE} are allowed"
                raise Http2ConnectionError(Http2ErrorCode.FRAME_SIZE_ERROR, message)
            stop = position + HEAD_SIZE + size
            if stop > end:
                break
            self._take(kind, flags, number & 0x7FFFFFFF, data[position + HEAD_SIZE : stop])
            position = stop
            if self.failed:
                return
        self._raw = data[position:]

    def _take(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if self._block is not None and (kind != frame.CONTINUATION or number != self._block_stream):
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "a header block is interrupted by another frame")
        if not self._settled and kind != frame.SETTINGS:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == frame.DATA:
            self._take_data(flags, number, content)
        elif kind == frame.HEADERS:
            self._take_headers(flags, number, content)
        elif kind == frame.CONTINUATION:
            self._continue(flags, content)
        elif kind == frame.WINDOW_UPDATE:
            self._take_window(number, content)
        elif kind == frame.RST_STREAM:
            self._take_reset(number, content)
        else:
            self._glitches.add()
            self._take_rare(kind, flags, number, content)

    def _take_data(self, flags: int, number: int, content: bytes) -> None:
        size = len(content)
        self._left -= size
        if self._left < 0:
            raise Http2ConnectionError(Http2ErrorCode.FLOW_CONTROL_ERROR, "more bytes than the window of the connection allows")
        if flags & frame.PADDED:
            content = _unpadded(content)
        ended = bool(flags & frame.END_STREAM)
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
            raise Http2ConnectionError(Http2ErrorCode.FLOW_CONTROL_ERROR, "more bytes than the window of a stream allows")
        stream.heard_all = ended
        self._give(self.on_data, stream, content, ended)
        if content:
            self._glitches.forgive()
            self._taken_of(stream, len(content))

    def _refuse_data(self, stream: Http2Stream | None, number: int) -> None:
        """Reject DATA that the stream's state does not permit."""
        if stream is None:
            self._check_known(number)
        elif stream.heard_all:
            self._break(stream, Http2StreamError(Http2ErrorCode.STREAM_CLOSED, "DATA after the end of a stream"))
        else:
            self._break(stream, Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, "DATA before the headers"))

    def _take_headers(self, flags: int, number: int, content: bytes) -> None:
        if flags & frame.PADDED:
            content = _unpadded(content)
        if flags & frame.HAS_PRIORITY:
            if len(content) < 5:
                raise Http2ConnectionError(Http2ErrorCode.FRAME_SIZE_ERROR, "HEADERS without its priority")
            content = content[5:]
        if not number or not number & 1:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "headers for a stream id that clients cannot use")
        self._block_stream = number
        self._block_ends = bool(flags & frame.END_STREAM)
        if flags & frame.END_HEADERS:
            self._take_block(content)
            return
        self._block, self._block_size = [content], len(content)

    def _continue(self, flags: int, content: bytes) -> None:
        block = self._block
        if block is None:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        block.append(content)
        self._block_size += len(content)
        if self._block_size > self.terms.head or len(block) > CONTINUATIONS:
            raise Http2ConnectionError(Http2ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long")
        if flags & frame.END_HEADERS:
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
            self._break(stream, Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, "trailers that do not end the stream"))
            return
        if stream.heard_all:
            self._break(stream, Http2StreamError(Http2ErrorCode.STREAM_CLOSED, "headers after the end of a stream"))
            return
        stream.heard_all = ended
        if headers is None and stream.has_head:
            self._break(stream, Http2StreamError(Http2ErrorCode.ENHANCE_YOUR_CALM, "the trailers are longer than allowed"))
            return
        if headers is None:
            self.on_too_many_headers(stream)
            return
        self._glitches.forgive()
        self._give(self.on_headers, stream, headers, ended)

    def _open(self, number: int) -> Http2Stream | None:
        """Begin the client's stream, or refuse it."""
        if not self._server or number <= self.last:
            self._check_known(number)
            return None
        self.last = number
        if self.said_goodbye or len(self.streams) >= self.terms.streams:
            self._glitches.add()
            self._close(number)
            self._send(frame.rst_stream(number, Http2ErrorCode.REFUSED_STREAM))
            return None
        stream = self.begin_stream(number)
        self._add(stream)
        return stream

    def _add(self, stream: Http2Stream) -> None:
        stream.window = self._initial_window
        stream.left = self.terms.stream_window
        self.streams[stream.number] = stream

    def _check_known(self, number: int) -> None:
        """Tolerate late frames for streams that have ended; any other is an error of the connection."""
        if number > self.last or not number & 1:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "a frame for an idle stream")
        self._glitches.add()
        if number not in self._closed and self._server:
            raise Http2ConnectionError(Http2ErrorCode.STREAM_CLOSED, "a frame for a stream that was closed long ago")

    def _give(self, event: Callable[..., None], stream: Http2Stream, content: object, ended: bool) -> None:
        try:
            event(stream, content, ended)
        except Http2StreamError as problem:
            self._break(stream, problem)

    def _break(self, stream: Http2Stream, problem: Http2StreamError) -> None:
        """Reset a stream for an error of the peer.

        A client that provokes this is charged as if it had cancelled its request.
        """
        self._glitches.add()
        if self.reset(stream, problem.code):
            self.on_reset(stream, problem.code)
            if self._server:
                self._glitches.reset()

    def _take_window(self, number: int, content: bytes) -> None:
        if len(content) != 4:
            raise Http2ConnectionError(Http2ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        self._glitches.add()
        increment = frame.number(content)
        if not number:
            if not increment or self._windows + increment > frame.LARGEST_WINDOW:
                raise Http2ConnectionError(
                    Http2ErrorCode.FLOW_CONTROL_ERROR,
                    "the window of the connection is increased by 0, or beyond the largest size",
                )
            self._windows += increment
            self.pump()
            return
        stream = self.streams.get(number)
        if stream is None:
            if number > self.last:
                raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE for an idle stream")
            return
        if not increment or stream.window + increment > frame.LARGEST_WINDOW:
            self._break(
                stream,
                Http2StreamError(
                    Http2ErrorCode.FLOW_CONTROL_ERROR, "the window of a stream is increased by 0, or beyond the largest size"
                ),
            )
            return
        stream.window += increment
        if stream.queued:
            self._waiting[stream] = None
            self.pump()

    def _take_reset(self, number: int, content: bytes) -> None:
        if len(content) != 4:
            raise Http2ConnectionError(Http2ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        if not number or number > self.last:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "RST_STREAM for an idle stream")
        stream = self.streams.get(number)
        if stream is None:
            self._glitches.add()
            return
        if self._server:
            self._glitches.reset()
        self.forget(stream)
        self.on_reset(stream, int.from_bytes(content, "big"))

    def _take_rare(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if kind == frame.SETTINGS:
            self._take_settings(flags, number, content)
        elif kind == frame.PING:
            if number or len(content) != 8:
                raise Http2ConnectionError(
                    Http2ErrorCode.FRAME_SIZE_ERROR if not number else Http2ErrorCode.PROTOCOL_ERROR, "a malformed PING"
                )
            if not flags & frame.ACK:
                self._out.append(frame.frame(frame.PING, frame.ACK, 0, content))
        elif kind == frame.GOAWAY:
            if number or len(content) < 8:
                raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "a malformed GOAWAY")
            self.said_goodbye = True
            self.on_goodbye(frame.number(content))
        elif kind == frame.PUSH_PROMISE:
            raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE is not allowed")
        elif kind == frame.PRIORITY and (not number or len(content) != 5):
            raise Http2ConnectionError(
                Http2ErrorCode.FRAME_SIZE_ERROR if number else Http2ErrorCode.PROTOCOL_ERROR, "a malformed PRIORITY"
            )

    def _take_settings(self, flags: int, number: int, content: bytes) -> None:
        if number or len(content) % 6 or (flags & frame.ACK and content):
            raise Http2ConnectionError(
                Http2ErrorCode.PROTOCOL_ERROR if number else Http2ErrorCode.FRAME_SIZE_ERROR, "malformed SETTINGS"
            )
        if flags & frame.ACK:
            return
        self._settled = True
        for name, value in frame.read_settings(content):
            if name == frame.INITIAL_WINDOW_SIZE:
                self._resize(value)
            elif name == frame.MAX_FRAME_SIZE and not FRAME_SIZE <= value < 1 << 24:
                raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE is out of bounds")
            elif name == frame.ENABLE_PUSH and value > 1:
                raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH is neither 0 nor 1")
            elif name == frame.MAX_CONCURRENT_STREAMS:
                self.most_streams = value
        self._send(frame.frame(frame.SETTINGS, frame.ACK, 0))
        self.pump()

    def _resize(self, window: int) -> None:
        if window > frame.LARGEST_WINDOW:
            raise Http2ConnectionError(Http2ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE is too large")
        increment = window - self._initial_window
        self._initial_window = window
        for stream in self.streams.values():
            stream.window += increment
            if stream.window > frame.LARGEST_WINDOW:
                raise Http2ConnectionError(
                    Http2ErrorCode.FLOW_CONTROL_ERROR, "the window of a stream is increased beyond the largest size"
                )
            if stream.queued:
                self._waiting[stream] = None

    # Flow control of received data.

    def _taken_of(self, stream: Http2Stream, size: int) -> None:
        """Return window for consumed bytes of a stream, unless the stream is held."""
        if stream.held and stream.number in self.streams:
            stream.owed += size
            return
        self._give_room(size)
        if not stream.heard_all:
            stream.taken += size
            if stream.taken * 2 >= self.terms.stream_window:
                self._renew(stream)

    def hold(self, stream: Http2Stream) -> None:
        """Stop renewing a stream's window; bytes that still arrive also count against the connection's window."""
        stream.held = True

    def go_on(self, stream: Http2Stream) -> None:
        """Renew the windows of a held stream again."""
        if stream.held:
            stream.held = False
            owed, stream.owed = stream.owed, 0
            self._give_room(owed)
            stream.taken += owed
            if stream.taken and not stream.heard_all and stream.number in self.streams:
                self._renew(stream)

    def _renew(self, stream: Http2Stream) -> None:
        stream.left += stream.taken
        self._send(frame.window_update(stream.number, stream.taken))
        stream.taken = 0


def _unpadded(content: bytes) -> bytes:
    if not content or content[0] >= len(content):
        raise Http2ConnectionError(Http2ErrorCode.PROTOCOL_ERROR, "a frame is shorter than its padding")
    return content[1 : len(content) - content[0]]
