"""Arbitrary bytes, in any pieces: an answer or a close, never an exception, and nothing after a refusal."""

from __future__ import annotations

import asyncio
import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairway.serving.router.http1_client import Http1ClientConnection
from fairway.serving.router.routing.router_state import RouterLimits, RouterState
from fairway.state.serving.route import RoutePlan

PARTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n", b"POST /a HTTP/1.1\r\n", b"POST /a HTTP/1.0\r\n", b"Host: a\r\n", b"Content-Length: 3\r\n",
        b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n",
        b"\r\n", b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"\n", b"\r", b" x\r\n", b"zz\r\n", b"\x00",
        b"Upgrade: h2c\r\n",
    ]
)  # fmt: skip
WHOLE = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ]
)
STREAM = st.lists(st.one_of(WHOLE, PARTS, st.binary(max_size=6)), max_size=14).map(b"".join)
ANSWER = re.compile(rb"HTTP/1\.1 (\d\d\d) [^\r\n]*\r\n(?:[^\r\n]+\r\n)*?content-length: (\d+)\r\n(?:[^\r\n]+\r\n)*\r\n")


class FakeTransport(asyncio.Transport):
    """Records what was written, and the final close."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.ended = False
        self.paused = False

    def get_extra_info(self, name, default=None):
        return ("127.0.0.1", 5) if name == "peername" else default

    def write(self, data):
        assert not self.ended
        self.sent += data

    def write_eof(self):
        self.ended = True

    def can_write_eof(self):
        return True

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def is_closing(self):
        return False

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False

    def close(self):
        self.ended = True

    abort = close


async def converse(stream: bytes, steps: list[int], *, hold: bool = False) -> FakeTransport:
    """Feed the bytes to a router that answers every valid request with 503: at once, or with `hold` at the end."""
    desk = RouterState("epoch", RouterLimits(), lambda: None)
    desk.put(RoutePlan("a/b", hold_limit=1 if hold else 0))
    transport = FakeTransport()
    connection = Http1ClientConnection(desk)
    connection.connection_made(transport)
    place, turn = 0, 0
    while place < len(stream):
        if transport.paused:
            # The next request is not read until this one is answered.
            desk.refuse_all("nobody is there")
            desk.deleted = False
            await asyncio.sleep(0)
        step = steps[turn % len(steps)]
        connection.data_received(stream[place : place + step])
        place, turn = place + step, turn + 1
        await asyncio.sleep(0)
    for _ in range(20):
        desk.refuse_all("nobody is there")
        desk.deleted = False
        await asyncio.sleep(0)
    connection.connection_lost(None)
    assert not desk.guests
    assert not desk.waiting
    return transport


@settings(max_examples=400, deadline=None)
@given(STREAM, st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_any_stream(stream: bytes, steps: list[int]) -> None:
    transport = asyncio.run(converse(stream, steps))
    place, statuses = 0, []
    while place < len(transport.sent):
        match = ANSWER.match(transport.sent, place)
        assert match is not None
        statuses.append(int(match[1]))
        place = match.end() + int(match[2])
    assert place == len(transport.sent)
    refused = [status for status in statuses if status != 503]
    assert all(status in (400, 414, 417, 431, 501, 505) for status in refused)
    assert len(refused) <= 1, "after a refusal nothing is read"
    assert not refused or (statuses[-1] == refused[0] and transport.ended)


@settings(max_examples=200, deadline=None)
@example(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", [1])
@given(STREAM, st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_the_pieces_make_no_difference(stream: bytes, steps: list[int]) -> None:
    whole = asyncio.run(converse(stream, [len(stream) or 1], hold=True))
    pieces = asyncio.run(converse(stream, steps, hold=True))
    assert (pieces.sent, pieces.ended) == (whole.sent, whole.ended)
