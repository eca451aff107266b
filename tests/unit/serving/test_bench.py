"""The load test against small servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairway.errors import UsageError
from fairway.serving.bench.drive import drive, request_bytes
from fairway.serving.bench.result import knee, point
from fairway.views.bench import BenchPoint, BenchView, bench_text
from fairway.views.table import Page


@asynccontextmanager
async def a_server(answer: bytes, *, close: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers every request with the same bytes; collects what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                asked.append(head + await reader.readexactly(length))
                writer.write(answer)
                if close:
                    break
        except (EOFError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/infer?x=1", asked


async def test_every_answer_is_counted_with_its_time() -> None:
    async with a_server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (url, asked):
        found = await drive(url, request_bytes(url, b'{"a":1}', {"Content-Type": "application/json"}), 3, 0.2)
    assert found.connections == 3
    assert found.failed == 0
    assert 0 < found.answered <= len(asked)
    assert 0 < found.latency[50] <= found.latency[95] <= found.latency[99]
    assert asked[0].startswith(b"POST /infer?x=1 HTTP/1.1\r\n")
    assert asked[0].endswith(b'\r\n\r\n{"a":1}')


async def test_chunked_answers_and_closed_connections_are_fine() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2;x=y\r\nok\r\n0\r\n\r\n"
    async with a_server(answer, close=True) as (url, _):
        found = await drive(url, request_bytes(url, b"", {}), 2, 0.2)
    assert found.answered > 2
    assert found.failed == 0


async def test_refusals_and_silence_are_failures() -> None:
    async with a_server(b"HTTP/1.1 429 Too Many\r\nContent-Length: 0\r\n\r\n") as (url, _):
        refused = await drive(url, request_bytes(url, b"", {}), 1, 0.1)
    gone = await drive(url, request_bytes(url, b"", {}), 1, 0.1)
    assert refused.answered == 0
    assert set(refused.statuses) == {429}
    assert set(gone.statuses) == {0}
    assert gone.failed > 0


async def test_only_plain_http_is_driven() -> None:
    with pytest.raises(UsageError, match="only http"):
        await drive("https://example.com/", b"", 1, 0.1)


def test_the_knee_is_where_more_load_only_waits() -> None:
    points = [
        point(1, 1.0, [0.01] * 100, {200: 100}),
        point(4, 1.0, [0.01] * 390, {200: 390}),
        point(16, 1.0, [0.04] * 400, {200: 400}),
        point(64, 1.0, [0.01] * 5000, {200: 5000, 500: 1}),
    ]
    best = knee(points)
    assert best is not None
    assert best.connections == 4
    assert knee([point(1, 1.0, [], {0: 3})]) is None


def test_the_last_point_is_no_knee() -> None:
    one = point(1, 1.0, [0.01] * 100, {200: 100})
    assert knee([one]) is None
    assert knee([one, point(4, 1.0, [0.01] * 390, {200: 390})]) is None
    shown = BenchPoint(1, 100.0, 1.0, 1.0, 1.0, 1.0, 100, 0)
    text = bench_text(BenchView("http://x", 1.0, (shown,)), Page())
    assert "no knee was found: 1 connection was tried" in text
    assert "the knee is at" not in text
    assert "<- knee" not in text
