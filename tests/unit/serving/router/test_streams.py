"""Requests over HTTP/2 and tunnels through a router in this process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from router_stage import Stage, until
from test_fuzz import FakeTransport

from fairway.serving.http2 import abuse_limit, frame
from fairway.serving.http2.frame import PREFACE
from fairway.serving.http2.hpack import encode
from fairway.serving.http2.http2_error import Http2ErrorCode
from fairway.serving.http2.single_request import SingleResponse, ask
from fairway.serving.router.http1_client import Http1ClientConnection
from fairway.serving.router.routing.router_state import RouterLimits, RouterState
from fairway.state.serving.route import WHOLE, RouteBackend, RouteHeaderMatch, RouteMirror, RoutePlan

GRPC = (b"content-type", b"application/grpc")
INFER = b"/inference.GRPCInferenceService/ModelInfer"


async def call(stage: Stage, path: bytes = INFER, body: bytes = b"\0\0\0\0\1x", *headers: tuple[bytes, bytes]) -> SingleResponse:
    async with asyncio.timeout(20.0):
        return await ask("127.0.0.1", stage.port, b"POST", path, [GRPC, (b"te", b"trailers"), *headers], body)


def status_of(answer: SingleResponse) -> tuple[int, bytes, bytes]:
    headers = dict(answer.headers)
    return answer.status, headers.get(b"grpc-status", b""), headers.get(b"grpc-message", b"")


async def test_a_page_over_http2(stage: Stage) -> None:
    replica = await stage.one()
    answer = await ask("127.0.0.1", stage.port, b"GET", b"/x?y=1", [(b"x-a", b"1")])
    assert answer.status == 200
    assert dict(answer.headers)[b"fairway-revision"] == b"1"
    asked = replica.asked[0]
    assert (asked.method, asked.path, asked.headers["x-a"]) == ("GET", "/x?y=1", "1")
    assert asked.headers["x-forwarded-for"] == "127.0.0.1"
    assert stage.load().revisions[1].answered == 1


@pytest.mark.parametrize(("status", "code"), [(400, b"3"), (404, b"5"), (429, b"8"), (500, b"13"), (501, b"12")])
async def test_a_failure_of_a_replica_becomes_a_status_of_grpc_and_is_counted_as_what_it_is(
    stage: Stage, status: int, code: bytes
) -> None:
    replica = await stage.one()
    replica.status = status
    answer = await call(stage)
    assert status_of(answer)[:2] == (200, code)
    load = stage.load().revisions[1]
    counted = (load.client_errors, load.rejected, load.failed)
    assert counted == (int(status < 429), int(status == 429), int(status >= 500))


async def test_a_call_to_a_replica_carries_its_message_and_says_that_it_is_binary(stage: Stage) -> None:
    replica = await stage.one()
    await call(stage, INFER, b"\0\0\0\0\3abc")
    asked = replica.asked[0]
    assert asked.body == b"\0\0\0\0\3abc"
    assert asked.headers["content-length"] == "8"
    assert asked.headers["inference-header-content-length"] == "0"


async def test_without_a_replica_a_call_waits_and_is_then_refused(stage: Stage) -> None:
    stage.plan(hold_seconds=0.05)
    assert status_of(await call(stage)) == (200, b"14", b"no replica became ready in time")


async def test_a_call_that_waits_goes_to_the_replica_that_comes(stage: Stage) -> None:
    stage.plan(hold_seconds=20.0)
    waits = asyncio.create_task(call(stage))
    await until(lambda: stage.desk.waiting)
    await stage.one()
    assert (await waits).status == 200


async def test_the_deadline_of_a_call_is_kept(stage: Stage) -> None:
    replica = await stage.one()
    replica.gate.clear()
    answer = await call(stage, INFER, b"\0\0\0\0\0", (b"grpc-timeout", b"50m"))
    assert status_of(answer)[1] == b"4"
    await until(lambda: not stage.load().backends["a"].in_flight)
    assert stage.load().revisions[1].failed == 1


async def test_a_replica_that_drains_passes_a_call_on_to_another(stage: Stage) -> None:
    one, other = await stage.replica("a"), await stage.replica("b")
    one.status, one.extra = 503, "fairway-draining: 1\r\n"
    stage.plan(one.backend, other.backend)
    for _ in range(4):
        assert (await call(stage)).status == 200
    assert len(other.asked) == 4


async def test_copies_of_calls_go_to_the_shadow(stage: Stage) -> None:
    one, shadow = await stage.replica("a", 1), await stage.replica("b", 2)
    stage.plan(one.backend, shadow.backend, weights=((1, WHOLE),), mirror=RouteMirror(2))
    await call(stage)
    await until(lambda: shadow.asked)
    assert shadow.asked[0].headers["fairway-mirror"] == "1"
    assert shadow.asked[0].body == b"\0\0\0\0\1x"


async def test_headers_choose_the_revision_of_a_call(stage: Stage) -> None:
    one, two = await stage.replica("a", 1), await stage.replica("b", 2)
    stage.plan(one.backend, two.backend, weights=((1, WHOLE),), matches=(RouteHeaderMatch("x-beta", "yes", 2),))
    await call(stage, INFER, b"\0\0\0\0\0", (b"x-beta", b"yes"))
    assert (len(one.asked), len(two.asked)) == (0, 1)


async def test_pages_of_other_sites_are_refused_over_http2_too(stage: Stage) -> None:
    await stage.one()
    stage.desk.at_loopback = True
    stage.plan(*stage.desk.routes.plan.backends)
    evil = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"evil.example")]
    reader, writer = await stage.open()
    writer.write(PREFACE + frame.settings({}) + frame.header_frames(1, encode(evil), ended=True))
    found = b""
    async with asyncio.timeout(20.0):
        while b"is no name of this endpoint" not in found:
            found += await reader.read(1000)


async def test_a_client_that_goes_takes_its_requests_along(stage: Stage) -> None:
    replica = await stage.one()
    replica.gate.clear()
    _, writer = await stage.open()
    head = encode([(b":method", b"POST"), (b":scheme", b"http"), (b":path", INFER), (b":authority", b"h"), GRPC])
    asks = b"".join(frame.header_frames(number, head, ended=True) for number in (1, 3, 5))
    writer.write(PREFACE + frame.settings({}) + asks)
    await replica.wait_for(3)
    writer.write(frame.rst_stream(3, 8))
    await until(lambda: stage.load().backends["a"].in_flight == 2)
    writer.close()
    await until(lambda: stage.load().backends["a"].in_flight == 0)
    assert not stage.desk.guests


BOMB = b"\x40\x01a" + b"\x7f\xa1\x1e" + b"v" * 4000 + b"\xbe" * 10_000
"""A block of headers that is short, but long when decoded."""
POST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"h")]


async def test_trailers_that_are_too_long_end_their_request_everywhere(stage: Stage) -> None:
    replica = await stage.one()
    replica.gate.clear()
    reader, writer = await stage.open()
    begins = frame.header_frames(1, encode(POST), ended=False)
    writer.write(PREFACE + frame.settings({}) + begins + frame.frame(frame.DATA, 0, 1, b"abc"))
    await until(lambda: "a" in stage.load().backends and stage.load().backends["a"].in_flight == 1)
    writer.write(frame.header_frames(1, BOMB, ended=True))
    await until(lambda: stage.load().backends["a"].in_flight == 0)
    assert await asyncio.wait_for(reader.readuntil(frame.rst_stream(1, Http2ErrorCode.ENHANCE_YOUR_CALM)), 20.0)
    assert not stage.desk.budget.used


async def test_bodies_of_a_wrong_length_are_no_way_to_reset_without_end(stage: Stage) -> None:
    await stage.one()
    reader, writer = await stage.open()
    wrong = encode([*POST, (b"content-length", b"3")])
    writer.write(PREFACE + frame.settings({}))
    writer.write(b"".join(frame.header_frames(number, wrong, ended=True) for number in range(1, 4 * abuse_limit.RESETS, 2)))
    with contextlib.suppress(ConnectionError):  # unread data makes the kernel reset the connection
        await asyncio.wait_for(reader.read(), 20.0)
    await until(lambda: not stage.desk.guests)


async def test_an_answer_that_its_client_does_not_take_is_bounded(stage: Stage) -> None:
    given_out = 0

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal given_out
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x" * 100_000)
            await writer.drain()
            given_out += 100_000

    stage.plan(await stage.play(play))
    _, writer = await stage.open()
    head = encode([(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"h")])
    writer.write(PREFACE + frame.settings({frame.INITIAL_WINDOW_SIZE: 0}) + frame.header_frames(1, head, ended=True))
    guest = None
    async with asyncio.timeout(20.0):
        while guest is None or not guest.streams or not next(iter(guest.streams.values())).queued_size:
            guest = next((each for each in stage.desk.guests if hasattr(each, "streams")), None)
            await asyncio.sleep(0.01)
        before = -1
        while before != given_out:
            before = given_out
            await asyncio.sleep(0.2)
    assert next(iter(guest.streams.values())).queued_size < 512 * 1024


async def test_drained_connections_say_goodbye_and_end(stage: Stage) -> None:
    await stage.one()
    reader, writer = await stage.open()
    writer.write(PREFACE + frame.settings({}))
    await until(lambda: any(hasattr(each, "streams") for each in stage.desk.guests))
    stage.desk.draining = True
    stage.desk.drain()
    async with asyncio.timeout(20.0):
        while stage.desk.guests:
            stage.desk.sweep()
            for guest in stage.desk.guests:
                guest.deadline = 0.0
            await asyncio.sleep(0.05)
        assert frame.HEAD.pack(0, 8, frame.GOAWAY, 0, 0) in await reader.read()


async def test_a_connection_whose_client_said_goodbye_is_closed_when_its_last_answer_is_out(stage: Stage) -> None:
    replica = await stage.one()
    replica.gate.clear()
    reader, writer = await stage.open()
    begins = frame.header_frames(1, encode(POST), ended=True)
    writer.write(PREFACE + frame.settings({}) + begins + frame.goaway(0, Http2ErrorCode.NO_ERROR))
    await replica.wait_for(1)
    for guest in list(stage.desk.guests):
        guest.expire()
    assert stage.desk.guests, "its answer is awaited"
    replica.gate.set()
    await until(lambda: stage.load().revisions[1].answered)
    for guest in list(stage.desk.guests):
        guest.expire()
    assert b"\0\0\1" in await asyncio.wait_for(reader.read(), 20.0)
    assert not stage.desk.guests


CONNECTS = {
    "of a proxy": [(b":method", b"CONNECT"), (b":authority", b"h:443")],
    "of a WebSocket": [
        (b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"https"), (b":path", b"/ws"), (b":authority", b"h"),
    ],
    "with a path": [(b":method", b"CONNECT"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"h")],
}  # fmt: skip


@pytest.mark.parametrize("lines", CONNECTS.values(), ids=CONNECTS)
async def test_connect_is_refused_over_http2_and_the_connection_goes_on(stage: Stage, lines: list[tuple[bytes, bytes]]) -> None:
    replica = await stage.one()
    reader, writer = await stage.open()
    writer.write(PREFACE + frame.settings({}) + frame.header_frames(1, encode(lines), ended=False))
    writer.write(frame.frame(frame.DATA, 0, 1, b"abc") + frame.header_frames(3, encode(POST), ended=True))
    said = b""
    async with asyncio.timeout(20.0):
        while frame.HEAD.pack(0, 0, frame.DATA, 1, 3)[3:] not in said and b"\0\1\0\0\0\3" not in said:
            said += await reader.read(1000)
    assert b"501" in said
    assert frame.rst_stream(1, Http2ErrorCode.PROTOCOL_ERROR) not in said
    assert [each.method for each in replica.asked] == ["POST"]
    assert stage.desk.own_codes == {501: 1}


@pytest.mark.parametrize("target", ["h:443", "/x", "http://h/x", "*"])
async def test_connect_is_refused_over_http1(stage: Stage, target: str) -> None:
    replica = await stage.one()
    said = await stage.talk(f"CONNECT {target} HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 501 ")
    assert b"connection: close" in said
    assert said.count(b"HTTP/1.1") == 2, "the reason names it once more; what follows is not read"
    assert not replica.asked


# Backends that use HTTP/2.


async def multiplexed(stage: Stage) -> Stage:
    """A second router as backend, over HTTP/2."""
    behind = Stage()
    await behind.start()
    await behind.one()
    stage.plan(RouteBackend("h2", 1, f"127.0.0.1:{behind.port}", "http2"))
    return behind


async def test_http1_and_http2_clients_reach_a_backend_of_http2(stage: Stage) -> None:
    behind = await multiplexed(stage)
    try:
        assert (await stage.ask(method="POST", body=b"abc")).status == 200
        chunked = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        chunked += b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        assert (await stage.talk(chunked)).startswith(b"HTTP/1.1 200 OK\r\n")
        assert (await call(stage)).status == 200
        assert len([each for each in behind.desk.guests if hasattr(each, "streams")]) == 1, "one connection for all"
    finally:
        await behind.end()


async def test_a_backend_of_http2_that_dies_is_counted(stage: Stage) -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(PREFACE) + 9)

    backend = await stage.play(play)
    stage.plan(RouteBackend("h2", 1, backend.address, "http2"))
    assert status_of(await call(stage))[1] == b"14"
    assert stage.load().revisions[1].failed == 1


# Tunnels.

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % base64.b64encode(b"0123456789abcdef")
)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that switches the protocol and echoes what it receives."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"upgrade: websocket" in head.lower()
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n"
    )
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def tunnel(stage: Stage) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    reader, writer = await stage.open()
    writer.write(UPGRADE)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0)
    return reader, writer, head


async def command(stage: Stage, play=echo, **more: object) -> None:
    backend = await stage.play(play)
    stage.plan(RouteBackend("ws", 1, backend.address, "http"), **more)


async def test_a_tunnel_carries_bytes_both_ways_and_counts_as_under_way(stage: Stage) -> None:
    await command(stage)
    reader, writer, head = await tunnel(stage)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"upgrade: websocket" in head
    assert stage.load().backends["ws"].in_flight == 1
    body = os.urandom(3_000_000)

    async def send() -> None:
        for start in range(0, len(body), 50_000):
            writer.write(body[start : start + 50_000])
            await writer.drain()

    sending = asyncio.create_task(send())
    assert await asyncio.wait_for(reader.readexactly(len(body)), 30.0) == body
    await sending
    writer.close()
    await until(lambda: stage.load().backends["ws"].in_flight == 0)
    assert stage.load().revisions[1].answered == 1
    assert not stage.desk.guests


async def test_what_comes_with_the_head_is_not_lost(stage: Stage) -> None:
    await command(stage)
    reader, writer = await stage.open()
    writer.write(UPGRADE + b"early")
    await reader.readuntil(b"\r\n\r\n")
    assert await asyncio.wait_for(reader.readexactly(5), 20.0) == b"early"


async def test_a_model_takes_no_tunnel(stage: Stage) -> None:
    await stage.one()
    assert b" 501 " in (await stage.talk(UPGRADE)).split(b"\r\n")[0]


async def test_a_server_that_opens_no_tunnel_answers_itself(stage: Stage) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 4\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(b"nope")
        await reader.read()

    await command(stage, refuse)
    answer = await stage.talk(UPGRADE)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert answer.endswith(b"nope")
    await until(lambda: stage.load().revisions[1].client_errors == 1)


async def test_a_tunnel_waits_for_a_replica(stage: Stage) -> None:
    stage.plan(hold_seconds=20.0)
    waits = asyncio.create_task(tunnel(stage))
    await until(lambda: stage.desk.waiting)
    await command(stage, hold_seconds=20.0)
    assert (await waits)[2].startswith(b"HTTP/1.1 101 ")


async def test_a_backend_that_ends_closes_the_tunnel(stage: Stage) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbye")
        await writer.drain()

    await command(stage, leave)
    reader, _, _ = await tunnel(stage)
    assert await asyncio.wait_for(reader.read(), 20.0) == b"bye"
    await until(lambda: stage.load().backends["ws"].in_flight == 0)


async def test_a_tunnel_that_rests_is_closed(stage: Stage) -> None:
    stage.desk.limits = RouterLimits(answer=0.1)
    await command(stage)
    reader, _, _ = await tunnel(stage)
    await asyncio.sleep(0.15)
    for guest in list(stage.desk.guests):
        guest.expire()
    assert await asyncio.wait_for(reader.read(), 20.0) == b""


async def test_what_a_client_does_not_read_is_not_read_from_the_server(stage: Stage) -> None:
    given_out = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal given_out
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        for _ in range(2000):
            writer.write(b"x" * 100_000)
            await writer.drain()
            given_out += 100_000

    await command(stage, flood)
    _, writer = await stage.open()
    writer.transport.pause_reading()
    writer.write(UPGRADE)
    await until(lambda: given_out)
    before = -1
    while before != given_out:
        before = given_out
        await asyncio.sleep(0.2)
    assert given_out < 100_000_000, "the kernel's buffers and two of the router's"


# Arbitrary bytes.

HEAD_OF = encode([(b":method", b"POST"), (b":scheme", b"http"), (b":path", INFER), (b":authority", b"h"), GRPC])
PAGE = encode([(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"h")])
LONG = encode([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"h"), (b"content-length", b"3")])
FRAMES = st.one_of(
    st.binary(max_size=12),
    st.builds(
        frame.frame,
        st.integers(0, 10),
        st.sampled_from([0, 1, 4, 5, 8, 13]),
        st.sampled_from([0, 1, 1, 3, 5, 7]),
        st.sampled_from([b"", HEAD_OF, PAGE, LONG, b"abc", b"\0\0\0\0\1x", b"\0\0\0\1", b"\0\0\0\0\0\0\0\1"]),
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAMES, max_size=12), st.integers(1, 60), st.booleans())
def test_any_frames_leave_nothing_behind(pieces: list[bytes], step: int, hold: bool) -> None:
    class Switching(FakeTransport):
        def set_protocol(self, protocol):
            self.protocol = protocol

    async def converse() -> None:
        desk = RouterState("epoch", RouterLimits(), lambda: None)
        desk.put(RoutePlan("a/b", hold_limit=5 if hold else 0))
        transport = Switching()
        transport.protocol = first = Http1ClientConnection(desk)
        first.connection_made(transport)
        wire = PREFACE + frame.settings({}) + b"".join(pieces)
        for start in range(0, len(wire), step):
            transport.protocol.data_received(wire[start : start + step])
            if transport.ended:
                break
            await asyncio.sleep(0)
        desk.refuse_all("nobody is there")
        await asyncio.sleep(0)
        transport.protocol.connection_lost(None)
        assert not desk.guests
        assert not desk.waiting
        assert not desk.budget.used

    asyncio.run(converse())
