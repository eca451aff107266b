from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.serving.router.chunked_body import LAST, ChunkedBodyReader, encode
from fairway.serving.router.message_head import BadHeadError


def read(*parts: bytes) -> tuple[bytes, bool, bytes]:
    reader = ChunkedBodyReader(400)
    found = b"".join(reader.feed(part) for part in parts if not reader.done)
    return found, reader.done, reader.rest


@given(st.lists(st.binary(min_size=1, max_size=40)), st.binary(max_size=10), st.lists(st.integers(1, 9), min_size=1))
def test_whatever_way_it_comes(pieces: list[bytes], after: bytes, steps: list[int]) -> None:
    wire = b"".join(map(encode, pieces)) + LAST
    reader, found, place, turn = ChunkedBodyReader(400), b"", 0, 0
    while place < len(wire):
        assert not reader.done
        step = steps[turn % len(steps)]
        turn += 1
        found += reader.feed(wire[place : place + step])
        place += step
    assert (found, reader.done, reader.rest) == (b"".join(pieces), True, b"")
    assert read(wire + after) == (b"".join(pieces), True, after)


def test_extensions_and_trailers_are_dropped() -> None:
    assert read(b'5;a="b"\r\nhello\r\n0;last\r\nX-Sum: 1\r\nY: 2\r\n\r\nGET') == (b"hello", True, b"GET")


@pytest.mark.parametrize(
    ("status", "wire"),
    [
        (400, b"5\nhello"),
        (400, b"5 \r\nhello\r\n"),
        (400, b" 5\r\nhello\r\n"),
        (400, b"+5\r\nhello\r\n"),
        (400, b"0x5\r\nhello\r\n"),
        (400, b"-5\r\nhello\r\n"),
        (400, b"\r\nhello\r\n"),
        (400, b"5_0\r\nhello\r\n"),
        (400, b"1" * 16 + b"\r\n"),
        (400, b"5\r\nhelloo\r\n"),
        (400, b"5\r\nhello\n"),
        (400, b"5;a\rb\r\nhello\r\n"),
        (400, b"5;" + b"a" * 2000),
        (400, b"0\r\nno colon\r\n\r\n"),
        (400, b"0\r\n X: folded\r\n\r\n"),
        (400, b"0\r\nX: a\n\r\n"),
        (431, b"0\r\n" + b"X: a\r\n" * 2000),
    ],
)
def test_what_is_refused(status: int, wire: bytes) -> None:
    with pytest.raises(BadHeadError) as caught:
        read(wire)
    assert caught.value.status == status


def test_a_backend_is_blamed_for_its_own() -> None:
    with pytest.raises(BadHeadError) as caught:
        ChunkedBodyReader(502).feed(b"x\r\n")
    assert caught.value.status == 502


@given(st.binary(max_size=60))
def test_noise_is_refused_or_read(wire: bytes) -> None:
    try:
        found, done, rest = read(wire)
    except BadHeadError:
        return
    assert done or not rest
    assert len(found) <= len(wire)
