"""HTTP requests on an HTTP/2 connection to a replica, other than gRPC calls for inference."""

from __future__ import annotations

import asyncio

import pytest
from small_connection import Transport, connected
from small_models import Told, app_of, signature

from fairway.serving.http2 import frame
from fairway.serving.http2.hpack import Header, encode

APP_SIGNATURE = signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3]))


async def requested(method: bytes, path: bytes, headers: tuple[Header, ...] = ()) -> Transport:
    """Send one request without a body and wait until its stream has ended."""
    connection, transport = connected(app_of(Told(APP_SIGNATURE, lambda inputs: inputs)))
    transport.written = b""
    lines = [(b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost"), *headers]
    connection.data_received(frame.header_frames(1, encode(lines), ended=True))
    for _ in range(100):
        await asyncio.sleep(0)
        if not connection.streams:
            return transport
    raise AssertionError("the stream did not end")


@pytest.mark.parametrize(
    ("path", "status"), [(b"/v2", b"200"), (b"/metrics", b"200"), (b"/nothing", b"404"), (b"/v2/models/m/infer", b"405")]
)
async def test_a_head_request_is_answered_without_a_body(path: bytes, status: bytes) -> None:
    transport = await requested(b"HEAD", path)
    assert [(kind, flags & frame.END_STREAM) for kind, flags, _ in transport.frames()] == [(frame.HEADERS, frame.END_STREAM)]
    (headers,) = transport.headers()
    assert headers[b":status"] == status
    assert int(headers[b"content-length"]) > 0


async def test_a_get_request_is_answered_with_its_body() -> None:
    transport = await requested(b"GET", b"/v2")
    (headers,) = transport.headers()
    body = b"".join(content for kind, _, content in transport.frames() if kind == frame.DATA)
    assert len(body) == int(headers[b"content-length"]) > 0
