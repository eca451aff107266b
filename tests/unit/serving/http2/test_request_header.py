"""Headers of requests: accepted ones mean the same in HTTP/1.1."""

from __future__ import annotations

import pytest

from fairway.serving.http2.grpc_status import escaped, is_grpc, of_http, read_timeout, to_http
from fairway.serving.http2.http2_error import Http2StreamError
from fairway.serving.http2.request_header import read_request_headers

USUAL = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"h:1"))


def test_the_usual_request() -> None:
    head = read_request_headers(
        (*USUAL, (b"content-type", b"application/grpc"), (b"te", b"trailers"), (b"cookie", b"a=1"), (b"cookie", b"b=2"))
    )
    assert (head.method, head.path, head.authority, head.length) == (b"POST", b"/a", b"h:1", None)
    assert head.lines == ((b"content-type", b"application/grpc"), (b"cookie", b"a=1; b=2"))
    assert head.is_grpc


@pytest.mark.parametrize(
    "headers",
    [
        USUAL[1:],
        (*USUAL[:1], *USUAL[2:]),
        (*USUAL, (b":path", b"/b")),
        (*USUAL, (b"a", b"1"), (b":x", b"1")),
        (*USUAL, (b":status", b"200")),
        (*USUAL, (b"Upper", b"1")),
        (*USUAL, (b"a b", b"1")),
        (*USUAL, (b"", b"1")),
        (*USUAL, (b"a", b"1\r\nx: 2")),
        (*USUAL, (b"a", b"1\x00")),
        (*USUAL, (b"a", b" 1")),
        (*USUAL, (b"connection", b"close")),
        (*USUAL, (b"transfer-encoding", b"chunked")),
        (*USUAL, (b"upgrade", b"websocket")),
        (*USUAL, (b"te", b"gzip")),
        (*USUAL, (b"host", b"other")),
        (*USUAL, (b"content-length", b"1"), (b"content-length", b"2")),
        (*USUAL, (b"content-length", b"-1")),
        ((b":method", b"CONNECT"), *USUAL[1:]),
        ((b":method", b"PO ST"), *USUAL[1:]),
        (*USUAL[:2], (b":path", b"a"), USUAL[3]),
        (*USUAL[:2], (b":path", b"/a b"), USUAL[3]),
        (*USUAL[:2], (b":path", b"/a\r\nx:1"), USUAL[3]),
        (*USUAL[:3], (b":authority", b"h\r\nx: 1")),
        (*USUAL[:3], (b":authority", b"h h")),
    ],
)
def test_what_no_request_may_have(headers) -> None:
    with pytest.raises(Http2StreamError):
        read_request_headers(headers)


def test_deadlines() -> None:
    assert read_timeout(b"100m") == pytest.approx(0.1)
    assert read_timeout(b"2H") == 7200.0
    assert [read_timeout(bad) for bad in (b"", b"1", b"m", b"123456789S", b"-1S", b"1s")] == [None] * 6


def test_statuses_and_messages() -> None:
    assert [of_http(status) for status in (400, 404, 429, 500, 503, 418)] == [3, 5, 8, 13, 14, 2]
    assert [to_http(status) for status in (b"0", b"3", b"8", b"13", b"14", b"99", b"x", b"")] == [
        200,
        400,
        429,
        500,
        503,
        500,
        500,
        500,
    ]
    assert escaped("ü%\n") == b"%C3%BC%25%0A"
    assert is_grpc(b"application/grpc+proto")
    assert not is_grpc(b"application/grpc-web")
