"""Requests and answers of every shape, through the router."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest
from router_stage import Answer, Stage, read_answer, until

from fairway.serving.router.routing.router_state import RouterLimits

POST = b"POST /x HTTP/1.1\r\nHost: here\r\n"


async def test_a_request_and_its_answer(stage: Stage) -> None:
    replica = await stage.one()
    answer = await stage.ask("X-A: b", method="POST", body=b"hello")
    assert answer.status == 200
    assert answer.headers["fairway-revision"] == "1"
    assert answer.headers["x-request-id"].startswith("epoch-")
    seen = replica.asked[0]
    assert (seen.method, seen.path, seen.body) == ("POST", "/x", b"hello")
    assert (seen.headers["x-a"], seen.headers["host"]) == ("b", "localhost")
    assert seen.headers["x-forwarded-for"] == "127.0.0.1"
    assert seen.headers["x-request-id"] == answer.headers["x-request-id"]
    assert "connection" not in seen.headers


async def test_connections_are_kept_on_both_sides(stage: Stage) -> None:
    replica = await stage.one()
    reader, writer = await stage.open()
    for number in range(5):
        writer.write(POST + b"Content-Length: 3\r\n\r\nabc")
        answer = await read_answer(reader)
        assert (answer.status, "connection" in answer.headers) == (200, False), number
    assert replica.connections == 1
    assert stage.load().revisions[1].answered == 5


async def test_requests_sent_ahead_are_answered_in_order(stage: Stage) -> None:
    await stage.one()
    paths = [f"/{number}" for number in range(20)]
    requests = b"".join(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab".encode() for path in paths)
    reader, writer = await stage.open()
    for start in range(0, len(requests), 97):
        writer.write(requests[start : start + 97])
        await asyncio.sleep(0)
    assert [json.loads((await read_answer(reader)).body)["path"] for _ in paths] == paths


async def test_a_body_in_chunks_whatever_way_it_comes(stage: Stage) -> None:
    replica = await stage.one()
    wire = POST + b"Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n"
    for step in (1, 7, len(wire)):
        reader, writer = await stage.open()
        for place in range(0, len(wire), step):
            writer.write(wire[place : place + step])
            await asyncio.sleep(0)
        assert (await read_answer(reader)).status == 200
    assert [(seen.body, seen.headers.get("x-trailer")) for seen in replica.asked] == [(b"hello world", None)] * 3


async def test_a_head_that_comes_byte_by_byte(stage: Stage) -> None:
    await stage.one()
    reader, writer = await stage.open()
    for byte in b"\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n":
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await read_answer(reader)).status == 200


async def test_head_has_no_body(stage: Stage) -> None:
    await stage.one()
    reader, writer = await stage.open()
    writer.write(b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\nGET /y HTTP/1.1\r\nHost: a\r\n\r\n")
    head = Answer(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0))
    assert int(head.headers["content-length"]) > 0
    assert json.loads((await read_answer(reader)).body)["path"] == "/y"


async def test_answers_without_a_body(stage: Stage) -> None:
    replica = await stage.one()
    replica.status = 304
    backend = await stage.play(_says(b"HTTP/1.1 204 Nothing\r\nA: b\r\n\r\n"))
    stage.plan(backend)
    raw = await stage.talk(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert Answer(raw).status == 204
    assert b"content-length" not in raw
    assert b"transfer-encoding" not in raw


def _says(*answers: bytes, close: bool = False):
    """Return a backend that answers each request with the next of these."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        if not close:
            await reader.read()

    return play


async def test_an_answer_in_chunks_loses_its_trailer(stage: Stage) -> None:
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n3;q\r\nabc\r\n2\r\nde\r\n0\r\nX: 1\r\n\r\n"
    stage.plan(await stage.play(_says(wire, wire)))
    reader, writer = await stage.open()
    for _ in range(2):
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        head = Answer(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0))
        assert head.headers["transfer-encoding"] == "chunked"
        assert "trailer" not in head.headers
        assert await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 20.0) == b"5\r\nabcde\r\n0\r\n\r\n"


async def test_an_answer_that_ends_with_its_connection(stage: Stage) -> None:
    wire = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it"
    stage.plan(await stage.play(_says(wire, close=True)))
    raw = await stage.talk(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert raw.endswith(b"9\r\nall of it\r\n0\r\n\r\n")
    raw = await stage.talk(b"GET / HTTP/1.0\r\n\r\n")
    assert raw.endswith(b"\r\n\r\nall of it")
    assert stage.load().revisions[1].answered == 2


async def test_http_1_0_gets_no_chunks(stage: Stage) -> None:
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    stage.plan(await stage.play(_says(wire)))
    raw = await stage.talk(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert raw.endswith(b"\r\n\r\nabc")
    assert Answer(raw).headers["connection"] == "close"


async def test_http_1_0_may_keep_its_connection(stage: Stage) -> None:
    await stage.one()
    reader, writer = await stage.open()
    for _ in range(2):
        writer.write(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = await read_answer(reader)
        assert (answer.status, answer.headers["connection"]) == (200, "keep-alive")


async def test_the_body_is_waited_for(stage: Stage) -> None:
    replica = await stage.one()
    reader, writer = await stage.open()
    writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"hello")
    assert (await read_answer(reader)).status == 200
    assert "expect" not in replica.asked[0].headers


async def test_what_a_backend_says_on_the_way_is_not_passed_on(stage: Stage) -> None:
    wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    stage.plan(await stage.play(_says(wire)))
    answer = await stage.ask()
    assert (answer.status, answer.body) == (200, b"ok")


async def test_events_are_passed_on_as_they_come(stage: Stage) -> None:
    told = asyncio.Event()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            writer.write(b"9\r\ndata: %d\n\n\r\n" % number)
            await told.wait()
            told.clear()
        writer.write(b"0\r\n\r\n")

    stage.plan(await stage.play(play))
    reader, writer = await stage.open()
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0)
    for number in range(3):
        assert await asyncio.wait_for(reader.readuntil(b"\n\n\r\n"), 20.0) == b"9\r\ndata: %d\n\n\r\n" % number
        told.set()
    assert await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 20.0)


async def test_large_bodies_both_ways_without_keeping_them(stage: Stage) -> None:
    size = 40_000_000
    got = asyncio.Event()
    peak = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await got.wait()
        left = size
        while left:
            left -= len(await reader.read(1 << 20))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 1_000_000):
            writer.write(b"y" * 1_000_000)
            await writer.drain()

    stage.plan(await stage.play(play))
    reader, writer = await stage.open()
    writer.transport.set_write_buffer_limits(1 << 16)
    writer.write(POST + b"Content-Length: %d\r\n\r\n" % size)

    async def send() -> None:
        nonlocal peak
        for number in range(size // 1_000_000):
            writer.write(b"x" * 1_000_000)
            if number == 20:
                got.set()  # until here the client has not read: most of it must still be on our side
                peak = writer.transport.get_write_buffer_size()
            if number > 20:
                await writer.drain()
            else:
                await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    answer = Answer(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60.0))
    assert len(await asyncio.wait_for(reader.readexactly(size), 60.0)) == size
    await sending
    assert answer.status == 200
    assert peak > 5_000_000


async def test_a_slow_client_slows_the_backend(stage: Stage) -> None:
    sent = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(100):
            writer.write(b"y" * 1_000_000)
            await writer.drain()
            sent += 1

    stage.plan(await stage.play(play))
    reader, writer = await stage.open()
    writer.transport.pause_reading()
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    before = -1
    while sent != before:  # until nothing more goes through
        before = sent
        await asyncio.sleep(0.2)
    assert sent < 30
    writer.transport.resume_reading()
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0)
    assert Answer(head).status == 200
    left = 100_000_000
    while left:
        left -= len(await asyncio.wait_for(reader.read(1 << 20), 20.0))
    await until(lambda: stage.load().revisions[1].answered == 1)


async def test_who_takes_no_answers_gets_no_more_of_them(stage: Stage) -> None:
    asked = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await reader.readuntil(b"\r\n\r\n")
            asked += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"y" * 1_000_000)
            await writer.drain()

    stage.plan(await stage.play(play))
    reader, writer = await stage.open()
    writer.transport.pause_reading()
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 60)
    before = -1
    while asked != before:  # until nothing more goes through
        before = asked
        await asyncio.sleep(0.2)
    assert 0 < asked < 30
    writer.transport.resume_reading()
    for _ in range(60):
        assert (await read_answer(reader)).status == 200
    assert asked == 60


async def test_requests_sent_ahead_wait_outside(stage: Stage) -> None:
    """However many are answered, the amount read ahead of later requests does not grow."""
    await stage.one()
    reader, writer = await stage.open()
    writer.transport.set_write_buffer_limits(1 << 16)
    request = POST + b"Content-Length: 2\r\n\r\nab"
    most = 0

    async def send() -> None:
        for _ in range(100):
            writer.write(request * 50)
            await writer.drain()

    sending = asyncio.create_task(send())
    await until(lambda: stage.desk.guests)
    (guest,) = stage.desk.guests
    for _ in range(5_000):
        assert (await read_answer(reader)).status == 200
        most = max(most, len(guest._raw))
    await sending
    assert 0 < most <= 2 * 65_536


async def test_an_early_answer_reaches_a_client_that_still_sends(stage: Stage) -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")

    stage.plan(await stage.play(play))
    reader, writer = await stage.open()
    writer.write(POST + b"Content-Length: 5000000\r\n\r\n" + b"x" * 1_000_000)
    answer = await read_answer(reader)
    assert (answer.status, answer.body, answer.headers["connection"]) == (413, b"big", "close")
    with suppress(ConnectionError):
        writer.write(b"x" * 1_000_000)
        await writer.drain()
    assert await asyncio.wait_for(reader.read(), 20.0) == b""


@pytest.mark.parametrize("held", [False, True])
async def test_a_client_that_leaves_takes_its_request_along(stage: Stage, held: bool) -> None:
    await stage.end()
    await stage.start(RouterLimits(leave=0.05))
    replica = await stage.one()
    replica.gate.clear()
    if held:
        stage.plan()
    _, writer = await stage.open()
    writer.write(POST + b"Content-Length: 2\r\n\r\nab")
    if held:
        await until(lambda: stage.load().held == 1)
    else:
        await replica.wait_for(1)
        assert stage.load().backends["a"].in_flight == 1
    writer.close()
    await until(lambda: stage.desk.sweep() or not stage.desk.guests)
    load = stage.load()
    assert (load.held, load.revisions[1].failed, load.revisions[1].answered) == (0, 0, 0)
    if not held:
        await until(lambda: replica.abandoned == 1)
        assert stage.load().backends["a"].in_flight == 0


async def test_a_client_that_closed_its_half_gets_its_answers(stage: Stage) -> None:
    replica = await stage.one()
    replica.gate.clear()
    reader, writer = await stage.open()
    writer.write((POST + b"Content-Length: 2\r\n\r\nab") * 2)
    writer.write_eof()
    await replica.wait_for(1)
    replica.gate.set()
    assert [(await read_answer(reader)).status for _ in range(2)] == [200, 200]
    assert await asyncio.wait_for(reader.read(), 20.0) == b""
    assert [seen.body for seen in replica.asked] == [b"ab", b"ab"]
    await until(lambda: not stage.desk.guests)


async def test_it_also_gets_an_answer_that_takes_long(stage: Stage) -> None:
    """An interim answer is sent in between; it reveals clients that have disconnected."""
    await stage.end()
    await stage.start(RouterLimits(leave=0.05))
    replica = await stage.one()
    replica.gate.clear()
    reader, writer = await stage.open()
    writer.write(POST + b"Content-Length: 2\r\n\r\nab")
    writer.write_eof()
    await replica.wait_for(1)
    await until(lambda: stage.desk.sweep() or reader._buffer)
    replica.gate.set()
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    while (head := await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0)) == interim:
        pass
    assert head.startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_waits_for_a_backend_may_have_closed_its_half(stage: Stage) -> None:
    reader, writer = await stage.open()
    writer.write(POST + b"Content-Length: 2\r\n\r\nab")
    writer.write_eof()
    await until(lambda: stage.load().held == 1)
    await stage.one()
    assert (await read_answer(reader)).status == 200


@pytest.mark.parametrize("sent", [b"Content-Length: 5\r\n\r\nab", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"])
async def test_half_a_body_is_no_request(stage: Stage, sent: bytes) -> None:
    replica = await stage.one()
    reader, writer = await stage.open()
    writer.write(POST + sent)
    await until(lambda: replica.connections == 1)
    writer.write_eof()
    answer = Answer(await asyncio.wait_for(reader.read(), 20.0))
    assert (answer.status, replica.asked) == (400, [])
    await until(lambda: stage.load().backends["a"].in_flight == 0)
    assert (await stage.ask()).status == 200


async def test_half_a_head_is_no_request(stage: Stage) -> None:
    await stage.one()
    reader, writer = await stage.open()
    writer.write(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /y HTT")
    writer.write_eof()
    assert (await read_answer(reader)).status == 200
    assert await asyncio.wait_for(reader.read(), 20.0) == b""
    await until(lambda: not stage.desk.guests)


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (400, POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
        (400, POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, POST + b"X: a\r\n b: folded\r\n\r\n"),
        (400, b"GET / HTTP/1.1\nHost: a\n\n"),
        (400, b"\r\n\r\n\r\n"),
        (431, b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000),
        (431, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000 + b"\r\n\r\n"),
        (505, b"GET / HTTP/2.0\r\n\r\n"),
        (501, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    ],
)
async def test_what_is_not_clear_is_refused_and_closed(stage: Stage, status: int, raw: bytes) -> None:
    replica = await stage.one()
    answer = Answer(await stage.talk(raw))
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert json.loads(answer.body)["error"]
    assert "/evil" not in {seen.path for seen in replica.asked}
    assert (await stage.ask()).status == 200  # unharmed


async def test_a_bad_chunk_after_a_good_one(stage: Stage) -> None:
    replica = await stage.one()
    reader, writer = await stage.open()
    writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await until(lambda: replica.connections == 1)
    writer.write(b"zz\r\n")
    assert Answer(await asyncio.wait_for(reader.read(), 20.0)).status == 400
    await until(lambda: stage.load().backends["a"].in_flight == 0)
    assert replica.asked == []


@pytest.mark.parametrize(
    "wire",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    ],
)
async def test_a_backend_that_talks_nonsense(stage: Stage, wire: bytes) -> None:
    stage.plan(await stage.play(_says(wire)))
    answer = await stage.ask(method="POST", body=b"x")
    assert answer.status == 502
    assert stage.load().revisions[1].failed == 1
    assert stage.load().backends["raw"].in_flight == 0


async def test_an_answer_that_breaks_off_is_seen_to(stage: Stage) -> None:
    stage.plan(await stage.play(_says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", close=True)))
    reader, writer = await stage.open()
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    raw = b""
    with suppress(ConnectionError):
        raw = await asyncio.wait_for(reader.read(), 20.0)
    assert not raw or Answer(raw).body == b"abc"
    assert stage.load().revisions[1].failed == 1


async def test_an_answer_that_breaks_off_in_its_head(stage: Stage) -> None:
    stage.plan(await stage.play(_says(b"HTTP/1.1 200 OK\r\nConte", close=True)))
    answer = await stage.ask(method="POST", body=b"x")
    assert answer.status == 502
    assert "ended the connection" in json.loads(answer.body)["error"]


async def test_more_than_was_announced_is_not_the_next_answer(stage: Stage) -> None:
    wire = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    stage.plan(await stage.play(_says(wire)))
    for _ in range(2):
        assert (await stage.ask()).body == b"ok"


class TestTime:
    """Timeouts."""

    @pytest.fixture
    async def stage(self) -> Stage:
        stage = Stage()
        await stage.start(RouterLimits(head=0.05, idle=0.05, body=0.05, answer=0.05))
        yield stage
        await stage.end()

    async def test_a_head_that_does_not_come(self, stage: Stage) -> None:
        reader, writer = await stage.open()
        writer.write(b"GET / HT")
        await self._sweep(stage)
        assert Answer(await asyncio.wait_for(reader.read(), 20.0)).status == 408

    async def test_a_connection_that_says_nothing(self, stage: Stage) -> None:
        reader, _ = await stage.open()
        await self._sweep(stage)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20.0) == b""

    async def test_a_connection_that_says_no_more(self, stage: Stage) -> None:
        await stage.one()
        reader, writer = await stage.open()
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await read_answer(reader)).status == 200
        await self._sweep(stage)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20.0) == b""

    async def test_a_backend_that_does_not_answer(self, stage: Stage) -> None:
        replica = await stage.one()
        replica.gate.clear()
        reader, writer = await stage.open()
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await replica.wait_for(1)
        await self._sweep(stage)
        assert (await read_answer(reader)).status == 504
        assert stage.load().revisions[1].failed == 1
        await until(lambda: replica.abandoned == 1)

    async def test_a_body_that_does_not_come(self, stage: Stage) -> None:
        await stage.one()
        reader, writer = await stage.open()
        writer.write(POST + b"Content-Length: 5\r\n\r\na")
        await until(lambda: stage.load().backends["a"].in_flight == 1)
        await self._sweep(stage)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20.0) == b""
        await until(lambda: stage.load().backends["a"].in_flight == 0)

    async def _sweep(self, stage: Stage) -> None:
        due = stage.desk.now() + 0.06
        await until(lambda: stage.desk.now() > due)
        await until(lambda: stage.desk.guests)
        stage.desk.sweep()
