"""The load test against small servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairway.errors import UsageError
from fairway.serving.bench.load_generator import drive, request_bytes
from fairway.serving.bench.load_point import knee, point
from fairway.views.serving.bench import BenchPoint, BenchView, bench_text
from fairway.views.text.table import TextPage


@asynccontextmanager
async def a_server(answer: bytes, *, close: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers every request with the same bytes; records the requests."""
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
        point = await drive(url, request_bytes(url, b'{"a":1}', {"Content-Type": "application/json"}), 3, 0.2)
    assert point.connections == 3
    assert point.failed == 0
    assert 0 < point.answered <= len(asked)
    assert 0 < point.latency[50] <= point.latency[95] <= point.latency[99]
    assert asked[0].startswith(b"POST /infer?x=1 HTTP/1.1\r\n")
    assert asked[0].endswith(b'\r\n\r\n{"a":1}')


async def test_chunked_answers_and_closed_connections_are_fine() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2;x=y\r\nok\r\n0\r\n\r\n"
    async with a_server(answer, close=True) as (url, _):
        point = await drive(url, request_bytes(url, b"", {}), 2, 0.2)
    assert point.answered > 2
    assert point.failed == 0


async def test_refusals_and_silence_are_failures() -> None:
    async with a_server(b"HTTP/1.1 429 Too Many\r\nContent-Length: 0\r\n\r\n") as (url, _):
        refused = await drive(url, request_bytes(url, b"", {}), 1, 0.1)
    gone = await drive(url, request_bytes(url, b"", {}), 1, 0.1)
    assert refused.answered == 0
    assert set(refused.statuses) == {429}
    assert set(gone.statuses) == {0}
    assert gone.failed > 0


@pytest.mark.timeout(20)
async def test_a_server_that_never_answers_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairway.serving.bench.load_generator.PATIENCE", 0.1)
    async with a_server(b"") as (url, asked):
        point = await drive(url, request_bytes(url, b"", {}), 3, 0.1)
    assert len(asked) == 3
    assert (point.answered, point.failed, point.statuses) == (0, 3, {0: 3})


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
    text = bench_text(BenchView("http://x", 1.0, (shown,)), TextPage())
    assert "no knee was found between measured points (1 connection tried)" in text
    assert "the knee is at" not in text
    assert "<- knee" not in text


def test_the_first_point_is_no_knee_but_for_one_connection() -> None:
    few = point(4, 1.0, [0.01] * 390, {200: 390})
    many = point(16, 1.0, [0.04] * 400, {200: 400})
    assert knee([few, many]) is None
    one = point(1, 1.0, [0.001] * 390, {200: 390})
    assert knee([one, few, many]) is one


async def test_an_open_loop_counts_from_when_a_request_was_due() -> None:
    async with a_server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (url, _):
        point = await drive(url, request_bytes(url, b"", {}), 4, 0.4, rate=200.0)
    assert point.offered == 200.0
    assert point.failed == 0
    assert 30 < point.answered < 150
    assert 0.0 < point.client_cpu <= 1.5
    assert knee([point]) is None


def shown(connections: int, rate: float, p95: float, **more: float) -> BenchPoint:
    return BenchPoint(connections, rate, p95, p95, p95, p95, 100, 0, **more)  # type: ignore[arg-type]


def test_the_chart_has_a_scale_at_both_axes() -> None:
    points = (shown(1, 100.0, 2.0), shown(4, 1300.0, 4.0), shown(16, 2100.0, 30.0))
    text = bench_text(BenchView("http://x", 1.0, points, 4), TextPage())
    lines = text.splitlines()
    chart = lines[lines.index("p95") + 1 :]
    assert chart[0].startswith("  30ms ┤")
    assert chart[7].startswith("2.00ms ┤")
    assert chart[8].startswith("       └┬──")
    assert chart[9].split() == ["100", "1,100", "2,100", "answers", "a", "second"]
    assert "the knee is at 4 connections (between 1 and 16, by the numbers that were tried)" in text


def test_a_load_generator_at_its_limit_is_named() -> None:
    points = (shown(1, 100.0, 2.0, client_cpu=0.2), shown(64, 900.0, 9.0, client_cpu=0.97))
    assert "from 64 connections on the load generator used 97% of its core" in bench_text(
        BenchView("http://x", 1.0, points), TextPage()
    )
    assert "load generator" not in bench_text(BenchView("http://x", 1.0, points[:1]), TextPage())


def test_an_open_loop_says_which_rate_was_kept() -> None:
    points = (shown(64, 100.0, 2.0, offered=100.0), shown(64, 300.0, 900.0, offered=400.0))
    text = bench_text(BenchView("http://x", 1.0, points), TextPage())
    assert "REQUESTS/S" in text
    assert "100 requests a second were answered as fast as they came, 95 of 100 within 2.00ms; at 400 not" in text
    assert "knee" not in text
