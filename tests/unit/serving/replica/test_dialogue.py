"""Message streams at a replica: how they end, and how much memory compressed messages may take."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import numpy as np
import pytest
from small_connection import connected
from small_models import Told, app_of, signature

from fairway.serving.http2 import frame
from fairway.serving.http2.hpack import encode
from fairway.serving.replica.http.request_body import BodyLimits
from fairway.serving.replica.protocols.grpc.proto_definition import definitions

SERVICE = b"/inference.GRPCInferenceService/"
WIDE = signature(x=("FP32", [-1, 1000]), out_y=("FP32", [-1]))


def begins(number: int, method: bytes, *, ended: bool = False) -> bytes:
    lines = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", SERVICE + method), (b":authority", b"localhost")]
    return frame.header_frames(number, encode([*lines, (b"content-type", b"application/grpc")]), ended=ended)


def question(rows: int) -> bytes:
    """Return a short compressed message with many zeros."""
    raw = np.zeros((rows, 1000), "f4").tobytes()
    told = {"model_name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 1000]}], "raw_input_contents": [raw]}
    message = gzip.compress(definitions().schema.encode("inference.ModelInferRequest", told))
    return b"\x01" + len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize(
    ("piece", "code"),
    [(b"\0\xff\xff\xff\xff", b"8"), (b"\0\0\0\0\5abc", b"3"), (b"\0\0", b"3")],
    ids=["of 4 GiB", "cut", "cut in its prefix"],
)
async def test_a_stream_that_fails_ends_with_trailers_alone(piece: bytes, code: bytes) -> None:
    connection, transport = connected(app_of(Told(WIDE, lambda inputs: [inputs[0][:, 0]])))
    connection.data_received(begins(1, b"ModelStreamInfer") + frame.frame(frame.DATA, frame.END_STREAM, 1, piece))
    head, trailers = transport.headers()
    assert head[b":status"] == b"200"
    assert trailers[b"grpc-status"] == code
    assert b":status" not in trailers
    assert not connection.streams


@pytest.mark.parametrize("method", [b"ModelInfer", b"ModelStreamInfer"])
async def test_what_compressed_messages_become_is_bounded_together(method: bytes) -> None:
    runtime = Told(WIDE, lambda inputs: [inputs[0][:, 0]])
    app = app_of(runtime, bodies=BodyLimits(held=16 << 20))
    held = app.bodies.held
    most = 0

    def submit(*_: Any) -> None:
        nonlocal most
        most = max(most, held.total)

    app._submit = submit  # type: ignore[method-assign]
    connection, transport = connected(app)
    body = question(1000)
    assert len(body) < 10_000
    for number in range(1, 41, 2):
        connection.data_received(begins(number, method) + frame.frame(frame.DATA, frame.END_STREAM, number, body))
        await asyncio.sleep(0)
    assert 4_000_000 < most <= 16 << 20
    assert held.total <= 16 << 20
    written = transport.written
    assert b"requests hold more than" in written
    connection.connection_lost(None)
    assert method == b"ModelStreamInfer" or not held.total
