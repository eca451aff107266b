"""Compressed bodies and answers: what is accepted, what is refused, and how much it may cost."""

from __future__ import annotations

import gzip
import json
import os
import time
import zlib
from typing import Any

import pytest
from small_models import Told, app_of, ask, signature

from fairway.serving.replica.http.content_encoding import COMPRESSED_FROM, STEP, accepted, decompressed, encoding_of
from fairway.serving.replica.http.request_body import BodyLimits
from fairway.serving.replica.request_error import RequestError


def raw(data: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflate.compress(data) + deflate.flush()


@pytest.mark.parametrize("data", [b"", b"x", b"abc" * 1000, os.urandom(3 * STEP + 17), bytes(20 * STEP)], ids=len)
def test_what_was_compressed_comes_back_in_bounded_pieces(data: bytes) -> None:
    half = len(data) // 2
    bodies = [
        (b"gzip", gzip.compress(data)),
        (b"gzip", gzip.compress(data) + b"\0" * 500),
        (b"gzip", gzip.compress(data[:half]) + gzip.compress(data[half:])),
        (b"deflate", zlib.compress(data)),
        (b"deflate", raw(data)),
    ]
    for encoding, body in bodies:
        pieces = list(decompressed(body, encoding))
        assert b"".join(pieces) == data
        assert max((len(piece) for piece in pieces), default=0) <= STEP


@pytest.mark.parametrize(
    ("encoding", "body", "words"),
    [
        (b"gzip", b"", "ends in the middle"),
        (b"gzip", gzip.compress(b"abc" * 100)[:-9], "ends in the middle"),
        (b"gzip", b"{}", "not valid gzip"),
        (b"gzip", zlib.compress(b"abc"), "not valid gzip"),
        (b"gzip", gzip.compress(b"abc")[:-8] + bytes(8), "not valid gzip"),
        (b"gzip", gzip.compress(b"abc") + b"garbage", "7 bytes follow"),
        (b"gzip", gzip.compress(b"abc") + b"\x1f\x8bgarbage", "not valid gzip"),
        (b"gzip", gzip.compress(b"") * 2000, "more than 1024 members"),
        (b"deflate", zlib.compress(b"abc") + b"x", "1 bytes follow"),
        (b"deflate", raw(b"abc" * 500)[:-3], "ends in the middle"),
        (b"deflate", gzip.compress(b"abc"), "not valid deflate"),
    ],
    ids=lambda value: value if isinstance(value, str) else len(value),  # gzip writes the time into a body
)
def test_broken_bodies_are_refused(encoding: bytes, body: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        list(decompressed(body, encoding))
    assert caught.value.status == 400


def test_time_grows_with_the_body_only() -> None:
    body = zlib.compress(os.urandom(16 << 20), 1)
    began = time.process_time()
    assert sum(map(len, decompressed(body, b"deflate"))) == 16 << 20
    assert time.process_time() - began < 3.0


@pytest.mark.parametrize(
    ("values", "found"),
    [([b"gzip"], b"gzip"), ([b"X-GZIP"], b"gzip"), ([b"identity"], b""), ([b""], b""), ([b"deflate, identity"], b"deflate")],
)
def test_encodings_of_requests(values: list[bytes], found: bytes) -> None:
    assert encoding_of([(b"content-encoding", value) for value in values]) == found


@pytest.mark.parametrize("values", [[b"br"], [b"gzip, gzip"], [b"gzip", b"deflate"], [b"gzip;q=1"], [b"x" * 9999]])
def test_encodings_that_are_refused(values: list[bytes]) -> None:
    with pytest.raises(RequestError) as caught:
        encoding_of([(b"content-encoding", value) for value in values])
    assert (caught.value.status, caught.value.headers) == (415, ((b"accept-encoding", b"gzip, deflate"),))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"gzip, deflate", b"gzip"),
        (b"deflate", b"deflate"),
        (b"gzip;q=0.2, deflate;q=0.8", b"deflate"),
        (b"*", b"gzip"),
        (b"gzip;q=0, *", b"deflate"),
        (b"gzip;q=0", b""),
        (b"br, zstd", b""),
        (b"gzip;q=abc", b""),
        (b"", b""),
    ],
)
def test_what_a_client_accepts(value: bytes, found: bytes) -> None:
    assert accepted([(b"accept-encoding", value)]) == found


def told(**more: Any) -> Any:
    return app_of(Told(signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1, 3])), lambda inputs: inputs), **more)


def infer(rows: int) -> bytes:
    return json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 3], "data": [1.5] * 3 * rows}]}).encode()


async def test_a_compressed_question_and_its_compressed_answer() -> None:
    app = told()
    for rows in (1, 5000, 20000):
        for name, sent in (("gzip", gzip.compress(infer(rows))), ("deflate", raw(infer(rows)))):
            headers = {"content-encoding": name, "accept-encoding": "gzip"}
            status, answer, found = await ask(app, "POST", "/v2/models/m/infer", sent, headers)
            if "content-encoding" in found:
                answer = json.loads(gzip.decompress(answer))
            assert (status, answer["outputs"][0]["shape"]) == (200, [rows, 3])
            assert ("content-encoding" in found) == (rows > 1)
    assert app.bodies.held.total == 0
    assert not app.busy


async def test_a_bomb_stops_at_the_limit() -> None:
    app = told(bodies=BodyLimits(size=1 << 20, json=1 << 18, held=1 << 22))
    bomb = gzip.compress(bytes(200 << 20), 9)
    began = time.process_time()
    status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", bomb, {"content-encoding": "gzip"})
    assert (status, "--max-json" in answer["error"]) == (413, True)
    length = {"content-encoding": "gzip", "inference-header-content-length": "100"}
    status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", bomb, length)
    assert (status, "--max-body" in answer["error"]) == (413, True)
    assert time.process_time() - began < 1.0
    assert app.bodies.held.total == 0


async def test_decompressed_bytes_count_as_held() -> None:
    app = told(bodies=BodyLimits(size=8 << 20, json=8 << 20, held=1 << 20))
    sent = gzip.compress(bytes(4 << 20))
    status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", sent, {"content-encoding": "gzip"})
    assert (status, "try again later" in answer["error"]) == (429, True)
    assert app.bodies.held.total == 0


async def test_small_answers_go_as_they_are() -> None:
    status, answer, headers = await ask(told(), "POST", "/v2/models/m/infer", infer(1), {"accept-encoding": "gzip"})
    assert (status, "content-encoding" in headers, len(json.dumps(answer)) < COMPRESSED_FROM) == (200, False, True)
