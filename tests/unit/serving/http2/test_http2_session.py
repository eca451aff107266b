"""A session with another implementation, with arbitrary bytes, and with known attacks."""

from __future__ import annotations

import struct

import h2.config
import h2.connection
import h2.events
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.serving.http2 import abuse_limit
from fairway.serving.http2 import frame as http2_frame
from fairway.serving.http2.frame import PREFACE, frame
from fairway.serving.http2.hpack import encode
from fairway.serving.http2.http2_error import Http2ErrorCode
from fairway.serving.http2.http2_session import CONTINUATIONS, Http2Limits, Http2Session
from fairway.serving.http2.http2_stream import Http2Stream

ASKS = encode([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"h")])
HELLO = PREFACE + http2_frame.settings({})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Server(Http2Session):
    """Records the events."""

    def __init__(self, terms: Http2Limits = Http2Limits()) -> None:
        self.clock = Clock()
        self.sent = b""
        self.events: list[tuple] = []
        self.problem = None
        self.most_writes = 10_000_000
        super().__init__(terms, self._put, server=True, now=self.clock)
        self.greet()

    def _put(self, wire: bytes) -> None:
        self.sent += wire
        self.most_writes -= 1
        assert self.most_writes, "it writes without end"

    def begin_stream(self, number: int) -> Http2Stream:
        return Http2Stream(number)

    def on_headers(self, stream, headers, ended) -> None:
        stream.has_head = True
        self.events.append(("headers", stream.number, headers, ended))

    def on_data(self, stream, piece, ended) -> None:
        self.events.append(("data", stream.number, bytes(piece), ended))

    def on_reset(self, stream, code) -> None:
        self.events.append(("reset", stream.number, code))

    def on_failure(self, problem) -> None:
        self.problem = problem


def reset_of(server: Server) -> list[tuple[int, int]]:
    """Return the streams that were reset, with the codes."""
    found, at = [], 0
    while at < len(server.sent):
        high, low, kind, _, number = http2_frame.HEAD.unpack_from(server.sent, at)
        size = high << 8 | low
        if kind == http2_frame.RST_STREAM:
            found.append((number, struct.unpack_from(">L", server.sent, at + 9)[0]))
        at += 9 + size
    return found


def asked(server: Server, number: int = 1, *, ended: bool = False) -> Http2Stream:
    server.receive(HELLO + http2_frame.header_frames(number, ASKS, ended=ended))
    return server.streams[number]


def test_another_client_is_understood_and_understands() -> None:
    server = Server()
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "h")])
    client.send_data(1, b"x" * 10_000, end_stream=True)
    wire = client.data_to_send()
    for start in range(0, len(wire), 7):
        server.receive(wire[start : start + 7])
    assert [event[0] for event in server.events] == ["headers", "data"]
    stream = server.streams[1]
    server.headers(stream, encode([(b":status", b"200")]), ended=False)
    server.data(stream, b"y" * 200_000, ended=False)
    server.headers(stream, encode([(b"grpc-status", b"0")]), ended=True)
    body, trailers = b"", None
    while trailers is None:
        sent, server.sent = server.sent, b""
        assert sent, "nothing more comes"
        for event in client.receive_data(sent):
            if isinstance(event, h2.events.DataReceived):
                body += event.data
                client.acknowledge_received_data(event.flow_controlled_length, 1)
            trailers = event.headers if isinstance(event, h2.events.TrailersReceived) else trailers
        server.receive(client.data_to_send())
    assert body == b"y" * 200_000
    assert trailers == [(b"grpc-status", b"0")]
    assert not server.streams


PIECES = st.one_of(
    st.binary(max_size=30),
    st.builds(
        frame,
        st.integers(0, 11),
        st.sampled_from([0, 1, 4, 5, 8, 9, 12, 13, 32, 37, 255]),
        st.sampled_from([0, 1, 1, 3, 5, 2, 1 << 31]),
        st.one_of(st.binary(max_size=12), st.just(ASKS), st.just(b"\x00\x00\x00\x01"), st.binary(min_size=8, max_size=8)),
    ),
)


@settings(max_examples=500, deadline=None)
@given(st.booleans(), st.lists(PIECES, max_size=12), st.integers(1, 50))
def test_any_bytes_are_events_or_an_end(greets: bool, pieces: list[bytes], step: int) -> None:
    server = Server()
    wire = (HELLO if greets else b"") + b"".join(pieces)
    for start in range(0, len(wire), step):
        server.receive(wire[start : start + step])
        if server.problem is not None:
            break
    assert server.failed == (server.problem is not None)
    assert len(server.streams) <= server.terms.streams


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECES, max_size=8), st.integers(1, 20))
def test_the_pieces_make_no_difference(pieces: list[bytes], step: int) -> None:
    wire = HELLO + b"".join(pieces)
    whole, parts = Server(), Server()
    whole.receive(wire)
    for start in range(0, len(wire), step):
        parts.receive(wire[start : start + step])
    whole.flush()
    parts.flush()
    assert (parts.events, parts.sent, parts.failed) == (whole.events, whole.sent, whole.failed)


def test_requests_that_are_taken_back_again_and_again_end_the_connection() -> None:
    server = Server()
    server.receive(HELLO)
    for number in range(1, 10_000, 2):
        server.receive(
            http2_frame.header_frames(number, ASKS, ended=True) + http2_frame.rst_stream(number, Http2ErrorCode.CANCEL)
        )
        if server.failed:
            break
    assert server.problem.code is Http2ErrorCode.ENHANCE_YOUR_CALM
    assert number < 2 * abuse_limit.RESETS + 10


def test_a_client_that_takes_back_some_of_its_requests_goes_on() -> None:
    server = Server()
    server.receive(HELLO)
    for number in range(1, 20_000, 4):
        stream = asked_again(server, number)
        server.headers(stream, encode([(b":status", b"200")]), ended=True)
        server.receive(
            http2_frame.header_frames(number + 2, ASKS, ended=True) + http2_frame.rst_stream(number + 2, Http2ErrorCode.CANCEL)
        )
    assert not server.failed


def asked_again(server: Server, number: int) -> Http2Stream:
    server.receive(http2_frame.header_frames(number, ASKS, ended=True))
    return server.streams[number]


@pytest.mark.parametrize(
    "piece",
    [
        http2_frame.settings({}),
        frame(http2_frame.PING, 0, 0, b"12345678"),
        http2_frame.window_update(0, 1),
        frame(http2_frame.DATA, 0, 1),
        frame(http2_frame.PRIORITY, 0, 1, b"\0\0\0\0\1"),
        frame(11, 0, 0, b"?"),
    ],
    ids=["settings", "ping", "window", "empty data", "priority", "unknown"],
)
def test_a_flood_of_frames_that_bring_nothing_ends_the_connection(piece: bytes) -> None:
    server = Server()
    asked(server)
    for _ in range(30):
        server.receive(piece * 1000)
    assert server.problem is not None
    assert server.problem.code is Http2ErrorCode.ENHANCE_YOUR_CALM
    assert len(server.sent) < 40 * abuse_limit.BURST


def test_pings_beside_requests_are_answered_for_ever() -> None:
    server = Server()
    server.receive(HELLO)
    for number in range(1, 40_000, 2):
        stream = asked_again(server, number)
        server.receive(frame(http2_frame.PING, 0, 0, b"12345678") * 2)
        server.headers(stream, encode([(b":status", b"200")]), ended=True)
    assert not server.failed


def test_a_block_of_headers_without_end_is_refused() -> None:
    server = Server()
    server.receive(HELLO + frame(http2_frame.HEADERS, 0, 1, ASKS))
    for _ in range(CONTINUATIONS + 1):
        server.receive(frame(http2_frame.CONTINUATION, 0, 1, b""))
    assert server.problem.code is Http2ErrorCode.ENHANCE_YOUR_CALM
    large = Server()
    large.receive(HELLO + frame(http2_frame.HEADERS, 0, 1, ASKS) + frame(http2_frame.CONTINUATION, 0, 1, b"\x82" * 16_000) * 3)
    assert large.problem.code is Http2ErrorCode.ENHANCE_YOUR_CALM


def test_a_bomb_of_headers_ends_its_stream_alone() -> None:
    server = Server()
    bomb = b"\x40\x01a" + b"\x7f\xa1\x1e" + b"v" * 4000 + b"\xbe" * 10_000
    server.receive(HELLO + http2_frame.header_frames(1, bomb, ended=True) + http2_frame.header_frames(3, ASKS, ended=True))
    assert reset_of(server) == [(1, Http2ErrorCode.ENHANCE_YOUR_CALM)]
    assert [event[:2] for event in server.events] == [("headers", 3)]


def test_a_frame_that_is_too_large_ends_the_connection_before_it_has_come() -> None:
    server = Server()
    server.receive(HELLO + http2_frame.HEAD.pack(64, 1, http2_frame.DATA, 0, 1))
    assert server.problem.code is Http2ErrorCode.FRAME_SIZE_ERROR


def test_more_streams_than_allowed_are_refused_alone() -> None:
    server = Server(Http2Limits(streams=3))
    server.receive(HELLO + b"".join(http2_frame.header_frames(number, ASKS, ended=False) for number in (1, 3, 5, 7, 9)))
    assert list(server.streams) == [1, 3, 5]
    assert reset_of(server) == [(7, Http2ErrorCode.REFUSED_STREAM), (9, Http2ErrorCode.REFUSED_STREAM)]
    assert not server.failed


def test_more_bytes_than_the_window_has_end_the_connection() -> None:
    server = Server(Http2Limits(stream_window=65_535, window=65_535))
    stream = asked(server)
    server.hold(stream)
    for _ in range(5):
        server.receive(frame(http2_frame.DATA, 0, 1, b"x" * 16_384))
    assert server.problem.code is Http2ErrorCode.FLOW_CONTROL_ERROR


def test_a_held_stream_gives_no_room_back_until_it_goes_on() -> None:
    server = Server(Http2Limits(stream_window=65_535, window=200_000))
    stream = asked(server)
    server.hold(stream)
    server.sent = b""
    server.receive(frame(http2_frame.DATA, 0, 1, b"x" * 16_384) * 3)
    assert server.sent == b""
    server.go_on(stream)
    assert http2_frame.window_update(1, 3 * 16_384) in server.sent


def test_without_a_window_the_answer_waits_and_its_sender_knows() -> None:
    server = Server()
    server.receive(
        PREFACE + http2_frame.settings({http2_frame.INITIAL_WINDOW_SIZE: 0}) + http2_frame.header_frames(1, ASKS, ended=True)
    )
    stream = server.streams[1]
    server.headers(stream, encode([(b":status", b"200")]), ended=False)
    server.sent = b""
    server.data(stream, b"y" * 100_000, ended=True)
    assert server.sent == b""
    assert stream.queued_size == 100_000
    server.receive(http2_frame.window_update(1, 1000))
    assert server.sent.endswith(b"y" * 1000)
    assert stream.queued_size == 99_000


def test_a_window_larger_than_any_ends_stream_or_connection() -> None:
    server = Server()
    asked(server)
    server.receive(http2_frame.window_update(1, http2_frame.LARGEST_WINDOW))
    assert reset_of(server) == [(1, Http2ErrorCode.FLOW_CONTROL_ERROR)]
    server.receive(http2_frame.window_update(0, http2_frame.LARGEST_WINDOW))
    assert server.problem.code is Http2ErrorCode.FLOW_CONTROL_ERROR


@pytest.mark.parametrize("blocked", [False, True])
def test_the_end_of_an_answer_needs_no_window(blocked: bool) -> None:
    server = Server()
    stream = asked(server, ended=True)
    server.headers(stream, encode([(b":status", b"200")]), ended=False)
    server.data(stream, b"y" * 60_000, ended=False)
    server.receive(http2_frame.settings({http2_frame.INITIAL_WINDOW_SIZE: 0}))
    assert stream.window < 0
    server.blocked, server.most_writes = blocked, 10
    server.sent = b""
    server.data(stream, b"", ended=True)
    server.blocked = False
    server.pump()
    assert server.sent == frame(http2_frame.DATA, http2_frame.END_STREAM, 1)
    assert not server.streams


MISTAKES = {
    "a window that grows by nothing": lambda number: http2_frame.window_update(number, 0),
    "a window that grows too far": lambda number: http2_frame.window_update(number, http2_frame.LARGEST_WINDOW),
    "data after the end": lambda number: frame(http2_frame.DATA, 0, number, b"x"),
    "headers after the end": lambda number: http2_frame.header_frames(number, ASKS, ended=True),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_client_that_has_its_requests_reset_is_bounded_like_one_that_resets_them(mistake) -> None:
    server = Server()
    server.receive(HELLO)
    for number in range(1, 4 * abuse_limit.RESETS, 2):
        server.receive(http2_frame.header_frames(number, ASKS, ended=True) + mistake(number))
    assert server.problem is not None
    assert server.problem.code is Http2ErrorCode.ENHANCE_YOUR_CALM
    begun = [event for event in server.events if event[0] == "headers"]
    assert len(begun) == abuse_limit.RESETS + 1


def test_a_few_mistakes_are_forgiven() -> None:
    server = Server()
    server.receive(HELLO)
    for number in range(1, 101, 2):
        server.receive(http2_frame.header_frames(number, ASKS, ended=True) + http2_frame.window_update(number, 0))
    assert not server.failed


def test_answers_take_turns() -> None:
    server = Server()
    server.receive(HELLO + http2_frame.header_frames(1, ASKS, ended=True) + http2_frame.header_frames(3, ASKS, ended=True))
    server.blocked = True
    for number in (1, 3):
        server.data(server.streams[number], bytes([number]) * 20_000, ended=True)
    server.sent, server.blocked = b"", False
    server.pump()
    order, at = [], 0
    while at < len(server.sent):
        high, low, _, _, number = http2_frame.HEAD.unpack_from(server.sent, at)
        order.append(number)
        at += 9 + (high << 8 | low)
    assert order == [1, 3, 1, 3]


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", Http2ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(http2_frame.PING, 0, 0, b"12345678"), Http2ErrorCode.PROTOCOL_ERROR),
        (HELLO + frame(http2_frame.HEADERS, 4, 2, ASKS), Http2ErrorCode.PROTOCOL_ERROR),
        (HELLO + frame(http2_frame.DATA, 0, 1, b"x"), Http2ErrorCode.PROTOCOL_ERROR),
        (HELLO + frame(http2_frame.CONTINUATION, 4, 1, ASKS), Http2ErrorCode.PROTOCOL_ERROR),
        (
            HELLO + frame(http2_frame.HEADERS, 0, 1, ASKS) + frame(http2_frame.PING, 0, 0, b"12345678"),
            Http2ErrorCode.PROTOCOL_ERROR,
        ),
        (HELLO + frame(http2_frame.PUSH_PROMISE, 4, 1, b"\0\0\0\2"), Http2ErrorCode.PROTOCOL_ERROR),
        (HELLO + frame(http2_frame.PING, 0, 0, b"1"), Http2ErrorCode.FRAME_SIZE_ERROR),
        (HELLO + frame(http2_frame.HEADERS, 4, 1, b"\xff"), Http2ErrorCode.COMPRESSION_ERROR),
        (HELLO + frame(http2_frame.RST_STREAM, 0, 1, b"\0\0\0\0"), Http2ErrorCode.PROTOCOL_ERROR),
        (HELLO + http2_frame.settings({http2_frame.INITIAL_WINDOW_SIZE: 1 << 31}), Http2ErrorCode.FLOW_CONTROL_ERROR),
    ],
)
def test_what_is_against_the_rules_ends_the_connection(wire: bytes, code: Http2ErrorCode) -> None:
    server = Server()
    server.receive(wire)
    assert server.problem is not None
    assert server.problem.code is code
    assert b"\x07" in server.sent[:-17]
