"""Failover: a request is sent to another backend when that is safe, and only then."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from router_stage import Answer, Stage, read_answer, until

from fairway.serving.router.routing.mirror import MIRROR_LIMIT
from fairway.serving.router.routing.router_state import RouterLimits
from fairway.state.serving.route import WHOLE, RouteMirror

POST = b"POST /x HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc"
GET = b"GET /x HTTP/1.1\r\nHost: here\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_a_refused_connection_goes_elsewhere(stage: Stage) -> None:
    dead, alive = await stage.replica("dead"), await stage.replica("alive")
    stage.plan(dead.backend, alive.backend)
    await dead.stop()
    for _ in range(10):
        answer = await stage.ask(method="POST", body=b"abc")
        assert json.loads(answer.body)["name"] == "alive"
    load = stage.load()
    assert load.backends["dead"].refused >= 1
    assert load.revisions[1].failed == 0
    assert stage.wakes >= 1


async def test_a_backend_that_comes_back_is_used_again(stage: Stage) -> None:
    replica = await stage.one()
    await replica.stop()
    request = asyncio.create_task(stage.ask(method="POST", body=b"abc"))
    await until(lambda: stage.load().held == 1)
    others = [asyncio.create_task(stage.ask(method="POST", body=b"abc")) for _ in range(5)]
    await until(lambda: stage.load().held == 6)
    await replica.start()
    assert {answer.status for answer in await asyncio.gather(request, *others)} == {200}
    assert stage.load().held == 0
    assert stage.load().expired == 0


async def test_while_a_backend_is_away_one_request_at_a_time_tries_it(stage: Stage) -> None:
    replica = await stage.one(hold_seconds=0.7)
    await replica.stop()
    answers = await asyncio.gather(*(stage.ask(method="POST", body=b"abc") for _ in range(30)))
    assert {answer.status for answer in answers} == {503}
    # The first thirty arrive before the first refusal is known; after that there is one attempt every fifth of a second.
    assert stage.load().backends["a"].refused <= 30 + 5


def closing(*, read: bool, answers: int = 1):
    """Return a backend that answers some requests of a connection and closes at the next one, having read it or not."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(answers):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
        if read:
            await reader.readuntil(b"\r\n\r\n")

    return play


async def prime(stage: Stage, request: bytes = GET) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Make the router open a connection to the backend and complete a request on it."""
    reader, writer = await stage.open()
    writer.write(request)
    assert (await read_answer(reader)).status == 200
    return reader, writer


async def test_a_get_that_was_taken_and_not_answered_is_sent_again(stage: Stage) -> None:
    stage.plan(await stage.play(closing(read=True)))
    reader, writer = await prime(stage)
    writer.write(GET)
    assert (await read_answer(reader)).status == 200


async def test_a_post_that_was_taken_and_not_answered_is_not(stage: Stage) -> None:
    taken = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(3)
        taken += 1

    stage.plan(await stage.play(play))
    reader, writer = await stage.open()
    writer.write(POST)
    answer = await read_answer(reader)
    assert (answer.status, taken) == (502, 1)
    assert stage.load().revisions[1].failed == 1
    writer.write(POST)  # the client's connection still works
    assert (await read_answer(reader)).status == 502


async def test_a_post_on_a_connection_that_had_ended_is_sent_again(stage: Stage) -> None:
    """The server closes an idle connection just as the next request is written, so it has not read that request."""
    replica = await stage.one()
    reader, writer = await prime(stage)
    place = next(iter(stage.desk.routes.places.values()))
    upstream = place._idle[0]
    descriptor = upstream._transport.get_extra_info("socket").fileno()
    upstream._transport.pause_reading()  # the router does not notice the end
    for other in list(replica._writers):
        other.close()
    await until(lambda: not replica._writers)
    with socket.socket(fileno=socket.dup(descriptor)) as same:
        same.setblocking(False)
        await until(lambda: _has_ended(same))
    upstream._transport.resume_reading()
    writer.write(POST)
    assert (await read_answer(reader)).status == 200
    assert replica.connections == 2
    assert stage.load().revisions[1].failed == 0


def _has_ended(same: socket.socket) -> bool:
    try:
        return same.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


async def test_a_post_that_was_never_read_is_sent_again(stage: Stage) -> None:
    """The backend dies with the request in its socket's buffer: the kernel answers with a reset."""
    replica = await stage.replica("good")

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        writer.transport.pause_reading()
        with socket.socket(fileno=socket.dup(sock.fileno())) as same:
            same.setblocking(False)
            await until(lambda: _has_bytes(same))
        writer.transport.abort()

    bad = await stage.play(play, "bad")
    stage.plan(bad)
    reader, writer = await stage.open()
    writer.write(POST)
    await until(lambda: stage.load().backends["bad"].in_flight == 1)
    stage.plan(replica.backend)
    assert json.loads((await read_answer(reader)).body)["name"] == "good"


def _has_bytes(same: socket.socket) -> bool:
    try:
        return bool(same.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


async def test_a_bad_status_is_tried_once_on_another(stage: Stage) -> None:
    bad, good = await stage.replica("bad"), await stage.replica("good")
    bad.status = 503
    stage.plan(bad.backend, good.backend)
    for _ in range(6):
        assert (await stage.ask()).status == 200
    assert bad.asked
    statuses = [(await stage.ask(method="POST", body=b"abc")).status for _ in range(6)]
    assert set(statuses) == {200, 503}
    good.status = 502
    assert (await stage.ask()).status in (502, 503)


@pytest.mark.parametrize("line", ["Retry-After: 1", "Fairway-Draining: 1"])
async def test_a_post_that_was_not_begun_is_tried_on_another(stage: Stage, line: str) -> None:
    bad, good = await stage.replica("bad"), await stage.replica("good")
    bad.status, bad.extra = 503, line + "\r\n"
    stage.plan(bad.backend, good.backend)
    for _ in range(6):
        answer = await stage.ask(method="POST", body=b"abc")
        assert (answer.status, json.loads(answer.body)["name"], json.loads(answer.body)["length"]) == (200, "good", 3)
    assert bad.asked
    assert stage.load().revisions[1].failed == 0


async def test_statuses_that_the_plan_does_not_name_are_passed_on(stage: Stage) -> None:
    bad, good = await stage.replica("bad"), await stage.replica("good")
    bad.status = 503
    stage.plan(bad.backend, good.backend, retry_statuses=())
    assert {(await stage.ask()).status for _ in range(6)} == {200, 503}


async def test_what_is_too_large_to_keep_is_not_sent_again(stage: Stage) -> None:
    await stage.end()
    await stage.start(RouterLimits(replay=10))
    bad, good = await stage.replica("bad"), await stage.replica("good")
    bad.status = 503
    stage.plan(bad.backend, good.backend)
    reader, writer = await stage.open()
    statuses = []
    for _ in range(2):
        writer.write(b"PUT /x HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n")
        await until(lambda: sum(load.in_flight for load in stage.load().backends.values()) == 1)
        writer.write(b"x" * 50)
        writer.write(b"x" * 50)
        statuses.append((await read_answer(reader)).status)
    assert sorted(statuses) == [200, 503]


async def leaving(stage: Stage, name: str = "leaving"):
    """Start a backend that accepts one connection, reads the head, and disappears."""
    left = asyncio.Event()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        stage._servers[-1].close()
        left.set()

    return await stage.play(play, name), left


@pytest.mark.parametrize("framed", ["length", "chunks"])
async def test_a_body_that_grows_while_no_backend_is_connected_arrives_whole(stage: Stage, framed: str) -> None:
    """Data sent in vain is needed again: it is not dropped beyond the limit; instead, the client has to wait."""
    await stage.end()
    await stage.start(RouterLimits(replay=10))
    backend, left = await leaving(stage)
    stage.plan(backend)
    reader, writer = await stage.open()
    parts = [b"a" * 5, b"b" * 45, b"c" * 50]
    frame = b"Content-Length: 100" if framed == "length" else b"Transfer-Encoding: chunked"
    wire = parts if framed == "length" else [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
    writer.write(b"PUT /x HTTP/1.1\r\nHost: here\r\n%b\r\n\r\n" % frame + wire[0])
    await asyncio.wait_for(left.wait(), 20.0)
    await until(lambda: stage.load().held == 1)
    writer.write(wire[1])
    exchange = next(iter(stage.desk.waiting))
    await until(lambda: exchange._replay.size >= 50)
    writer.write(wire[2] + (b"" if framed == "length" else b"0\r\n\r\n"))
    replica = await stage.replica("good")
    stage.plan(replica.backend)
    assert (await read_answer(reader)).status == 200
    assert replica.asked[0].body == b"".join(parts)
    assert stage.desk.budget.used == 0


async def test_a_request_whose_copy_was_dropped_is_not_sent_again(stage: Stage) -> None:
    """A head is never sent without its body, and a connection that still waits for one is not used for the next request."""
    await stage.end()
    await stage.start(RouterLimits(replay=10))
    backend, left = await leaving(stage)
    good = await stage.replica("good")
    stage.plan(backend)
    reader, writer = await stage.open()
    writer.write(b"PUT /x HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n")
    await until(lambda: stage.load().backends["leaving"].in_flight == 1)
    exchange = next(iter(stage.desk.guests))._exchange
    await until(lambda: exchange._upstream is not None or left.is_set())
    exchange._replay.drop()
    stage.plan(good.backend)
    await asyncio.wait_for(left.wait(), 20.0)
    assert (await read_answer(reader)).status == 502
    assert good.asked == []
    answer = await stage.ask(method="POST", body=b"abc")
    assert json.loads(answer.body)["length"] == 3


async def test_a_connection_without_the_whole_body_is_not_used_again(stage: Stage) -> None:
    """The backend answers before it has read the body, and would take the next request for the rest of it."""
    connections = 0
    heads: list[bytes] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(OK)

    stage.plan(await stage.play(play))
    reader, writer = await stage.open()
    writer.write(b"POST /x HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\nabc")
    assert (await read_answer(reader)).status == 200
    assert (await stage.ask()).status == 200
    assert connections == 2
    assert [head.split(b" ")[0] for head in heads] == [b"POST", b"GET"]


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_connection_with_bytes_after_its_answer_is_not_used_again(stage: Stage, at_once: bool) -> None:
    more = asyncio.Event()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        extra = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        writer.write(OK + (extra if at_once else b""))
        if not at_once:
            await more.wait()
            writer.write(extra)
        await reader.read()

    stage.plan(await stage.play(play))
    assert (await stage.ask()).body == b"ok"
    place = next(iter(stage.desk.routes.places.values()))
    if not at_once:
        upstream = place._idle[0]
        upstream._transport.pause_reading()  # the bytes are in the kernel when the connection is needed
        more.set()
        await until(lambda: not upstream.is_quiet())
        assert place.take_idle(stage.desk.now()) is None
    more.set()
    assert (await stage.ask()).body == b"ok"


async def test_the_time_of_a_slow_upload_is_not_the_replicas(stage: Stage) -> None:
    await stage.one()
    now = 0.0
    stage.desk.now = lambda: now
    reader, writer = await stage.open()
    writer.write(b"POST /x HTTP/1.1\r\nHost: here\r\nContent-Length: 6\r\n\r\nabc")
    await until(lambda: stage.load().backends["a"].in_flight == 1)
    now = 30.0
    writer.write(b"def")
    assert (await read_answer(reader)).status == 200
    assert stage.load().revisions[1].latency_sum < 1.0


async def test_all_that_waits_together_is_bounded(stage: Stage) -> None:
    await stage.end()
    await stage.start(RouterLimits(kept=1_000_000))
    asked = [asyncio.create_task(stage.ask(method="POST", body=b"x" * 60_000)) for _ in range(40)]
    await until(lambda: sum(task.done() for task in asked) + stage.load().held == 40)
    refused = [task.result() for task in asked if task.done()]
    assert {(answer.status, answer.headers["retry-after"]) for answer in refused} == {(503, "1")}
    assert 0 < stage.load().held < 40
    assert stage.desk.budget.used <= 1_000_000
    replica = await stage.one()
    answers = [await task for task in asked]
    assert {answer.status for answer in answers} == {200, 503}
    assert {len(seen.body) for seen in replica.asked} == {60_000}
    assert stage.desk.budget.used == 0


async def test_who_has_a_backend_makes_room_for_who_waits(stage: Stage) -> None:
    """A copy that may never be needed is dropped before a request is refused."""
    await stage.end()
    await stage.start(RouterLimits(kept=100_000))
    replica = await stage.one()
    replica.gate.clear()
    first = asyncio.create_task(stage.ask(method="POST", body=b"x" * 60_000))
    await replica.wait_for(1)
    second = asyncio.create_task(stage.ask(method="POST", body=b"y" * 60_000))
    await replica.wait_for(2)
    assert stage.desk.budget.used < 100_000
    replica.gate.set()
    assert [(await task).status for task in (first, second)] == [200, 200]
    assert stage.desk.budget.used == 0


async def test_a_request_waits_for_a_backend_with_its_body(stage: Stage) -> None:
    reader, writer = await stage.open()
    writer.write(b"POST /x HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await until(lambda: stage.load().held == 1)
    assert stage.wakes >= 1
    writer.write(b"3\r\ndef\r\n0\r\n\r\n")
    replica = await stage.one()
    assert (await read_answer(reader)).status == 200
    assert replica.asked[0].body == b"abcdef"


async def test_where_the_service_is_gone_no_request_waits(stage: Stage) -> None:
    """A request that lost its backend a moment before must not delay the end of the router."""
    backend, left = await leaving(stage)
    stage.plan(backend)
    reader, writer = await stage.open()
    writer.write(GET)
    stage.desk.refuse_all("the service was deleted")
    await asyncio.wait_for(left.wait(), 20.0)
    assert (await read_answer(reader)).status == 503
    assert stage.load().held == 0


async def test_many_who_waited_do_not_fall_upon_the_first_backend(stage: Stage) -> None:
    asked = [asyncio.create_task(stage.ask(method="POST", body=b"abc")) for _ in range(200)]
    await until(lambda: stage.load().held == 200)
    replica = await stage.replica()
    replica.gate.clear()
    stage.plan(replica.backend)
    await replica.wait_for(64)
    assert (len(replica.asked), stage.load().held) == (64, 136)
    replica.gate.set()
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    assert len(replica.asked) == 200


async def test_requests_without_an_answer_do_not_keep_others_waiting(stage: Stage) -> None:
    asked = [asyncio.create_task(stage.ask(method="POST", body=b"abc")) for _ in range(70)]
    await until(lambda: stage.load().held == 70)
    replica = await stage.replica()
    replica.gate.clear()
    stage.plan(replica.backend)
    await replica.wait_for(64)
    await replica.wait_for(70)  # two seconds later, though none of the first has been answered
    assert stage.load().held == 0
    replica.gate.set()
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}


async def test_a_large_request_waits_outside(stage: Stage) -> None:
    reader, writer = await stage.open()
    size = 30_000_000
    writer.write(b"POST /x HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
    await until(lambda: stage.load().held == 1)
    before = -1
    while writer.transport.get_write_buffer_size() != before:  # until the router reads no more of it
        before = writer.transport.get_write_buffer_size()
        await asyncio.sleep(0.1)
    assert before > 15_000_000
    replica = await stage.one()
    assert (await read_answer(reader)).status == 200
    assert len(replica.asked[0].body) == size


async def test_one_who_expects_is_told_to_go_on_when_there_is_a_backend(stage: Stage) -> None:
    reader, writer = await stage.open()
    writer.write(b"POST /x HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    await until(lambda: stage.load().held == 1)
    await stage.one()
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await read_answer(reader)).status == 200


async def test_no_room_to_wait(stage: Stage) -> None:
    stage.plan(hold_limit=0)
    answer = await stage.ask(method="POST", body=b"abc")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert stage.load().expired == 1


async def test_a_revision_without_a_part_gets_nothing_by_accident(stage: Stage) -> None:
    shadow = await stage.replica("shadow", 2)
    stage.plan(shadow.backend, weights=((1, WHOLE),), mirror=RouteMirror(2), hold_seconds=0.1)
    assert (await stage.ask()).status == 503
    assert shadow.asked == []


async def test_a_backend_that_leaves_finishes_what_it_has(stage: Stage) -> None:
    old, new = await stage.replica("old"), await stage.replica("new", 2)
    stage.plan(old.backend)
    old.gate.clear()
    reader, writer = await stage.open()
    writer.write(POST)
    await old.wait_for(1)
    stage.plan(new.backend)
    assert json.loads((await stage.ask()).body)["name"] == "new"
    old.gate.set()
    assert json.loads((await read_answer(reader)).body)["name"] == "old"
    await until(lambda: not old._writers)  # and its connection is not kept
    assert stage.load().revisions[1].answered == 1


async def test_the_least_busy_backend_is_taken(stage: Stage) -> None:
    slow, fast = await stage.replica("slow"), await stage.replica("fast")
    slow.gate.clear()
    stage.plan(slow.backend)
    request = asyncio.create_task(stage.ask())
    await slow.wait_for(1)
    stage.plan(slow.backend, fast.backend)
    names = {json.loads((await stage.ask()).body)["name"] for _ in range(8)}
    assert names == {"fast"}
    slow.gate.set()
    assert (await request).status == 200


class TestMirror:
    async def test_copies_are_measured_and_thrown_away(self, stage: Stage) -> None:
        real, shadow = await stage.replica("real"), await stage.replica("shadow", 2)
        stage.plan(real.backend, shadow.backend, weights=((1, WHOLE),), mirror=RouteMirror(2, 5_000))
        for _ in range(10):
            assert json.loads((await stage.ask(method="POST", body=b"abc")).body)["name"] == "real"
        await shadow.wait_for(5)
        await until(lambda: sum(stage.load().revisions[2].latency) == 5)
        seen = stage.load().revisions[2]
        assert (seen.mirrored, seen.mirror_failed, seen.arrived, seen.answered) == (5, 0, 0, 0)
        assert {(asked.body, asked.headers["fairway-mirror"]) for asked in shadow.asked} == {(b"abc", "1")}
        assert "fairway-mirror" not in real.asked[0].headers

    async def test_a_copy_that_hangs_holds_nobody_up(self, stage: Stage) -> None:
        real, shadow = await stage.replica("real"), await stage.replica("shadow", 2)
        shadow.gate.clear()
        stage.plan(real.backend, shadow.backend, weights=((1, WHOLE),), mirror=RouteMirror(2))
        for _ in range(MIRROR_LIMIT + 10):
            assert (await stage.ask()).status == 200
        await shadow.wait_for(MIRROR_LIMIT)
        assert len(shadow.asked) == MIRROR_LIMIT
        assert stage.desk.mirrors == MIRROR_LIMIT

    async def test_failures_of_copies(self, stage: Stage) -> None:
        real, shadow = await stage.replica("real"), await stage.replica("shadow", 2)
        shadow.status = 500
        stage.plan(real.backend, shadow.backend, weights=((1, WHOLE),), mirror=RouteMirror(2))
        assert (await stage.ask()).status == 200
        await until(lambda: stage.load().revisions[2].mirror_failed == 1)
        await shadow.stop()
        assert (await stage.ask()).status == 200
        await until(lambda: stage.load().revisions[2].mirror_failed == 2)
        assert stage.load().revisions[2].failed == 0

    async def test_client_errors_of_copies_are_no_failures_and_no_latencies(self, stage: Stage) -> None:
        real, shadow = await stage.replica("real"), await stage.replica("shadow", 2)
        shadow.status = 400
        stage.plan(real.backend, shadow.backend, weights=((1, WHOLE),), mirror=RouteMirror(2))
        assert (await stage.ask()).status == 200
        await until(lambda: stage.load().revisions[2].mirror_client_errors == 1)
        seen = stage.load().revisions
        assert (seen[2].mirrored, seen[2].mirror_failed, seen[2].client_errors, sum(seen[2].latency)) == (1, 0, 0, 0)
        assert (seen[1].client_errors, sum(seen[1].latency)) == (0, 1)


async def test_client_errors_are_counted_by_version_and_the_routers_own_are_not(stage: Stage) -> None:
    old, new = await stage.replica("old"), await stage.replica("new", 2)
    new.status = 400
    stage.plan(old.backend, new.backend, weights=((1, 5_000), (2, 5_000)))
    statuses = sorted([(await stage.ask(method="POST", body=b"{}")).status for _ in range(10)])
    assert statuses == [200] * 5 + [400] * 5
    own = b"GET /fairway/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert Answer(await stage.talk(own)).status == 404
    seen = stage.load().revisions
    assert (seen[1].answered, seen[1].client_errors, sum(seen[1].latency)) == (5, 0, 5)
    assert (seen[2].answered, seen[2].client_errors, sum(seen[2].latency)) == (5, 5, 0)


class TestDrain:
    async def test_connections_end_after_their_answer(self, stage: Stage) -> None:
        await stage.one()
        reader, writer = await prime(stage)
        stage.desk.draining = True
        stage.desk.drain()
        writer.write(POST)
        answer = await read_answer(reader)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await asyncio.wait_for(reader.read(), 20.0) == b""

    async def test_those_who_wait_are_told(self, stage: Stage) -> None:
        request = asyncio.create_task(stage.ask(method="POST", body=b"abc"))
        await until(lambda: stage.load().held == 1)
        stage.desk.refuse_all("the service was deleted")
        answer = await request
        assert answer.status == 503
        assert "deleted" in json.loads(answer.body)["error"]


async def test_busy_seconds_and_latency(stage: Stage) -> None:
    replica = await stage.one()
    replica.gate.clear()
    asked = [asyncio.create_task(stage.ask()) for _ in range(2)]
    await replica.wait_for(2)
    began = stage.desk.now()
    await until(lambda: stage.desk.now() > began + 0.1)
    assert stage.load().backends["a"].busy_seconds > 0.1
    replica.gate.set()
    await asyncio.gather(*asked)
    load = stage.load()
    assert load.revisions[1].latency_sum > 0.2
    assert load.backends["a"].busy_seconds < load.revisions[1].latency_sum
    assert sum(load.revisions[1].latency) == 2


async def test_also_what_cannot_be_understood_has_an_id(stage: Stage) -> None:
    assert Answer(await stage.talk(b"nonsense\r\n\r\n")).headers["x-request-id"] == "epoch-1"
