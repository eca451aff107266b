"""Requests in flight with an API key that is revoked or expires."""

from __future__ import annotations

import asyncio

import pytest
from router_stage import Stage, read_answer, until
from test_streams import GRPC, UPGRADE, echo

from fairway.serving.http2 import frame
from fairway.serving.http2.frame import PREFACE
from fairway.serving.http2.hpack import encode
from fairway.serving.http2.http2_error import Http2ErrorCode
from fairway.state.serving.access import AccessRules, KeyRule, digest_of, format_key
from fairway.state.serving.route import RouteBackend

KEY = format_key("a/b", "0a1b2c3d", "5" * 64)
OTHER = format_key("a/b", "0a1b2c3e", "6" * 64)
RULE = KeyRule("ci", "0a1b2c3d", digest_of(KEY))
OTHER_RULE = KeyRule("other", "0a1b2c3e", digest_of(OTHER))
REASON = b"the API key was revoked or has expired"


async def begins(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that begins an answer and does not complete it."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
    await reader.read()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await reader.read()


async def guarded(stage: Stage, play, *keys: KeyRule, protocol: str = "") -> RouteBackend:
    backend = RouteBackend("w", 1, (await stage.play(play)).address, protocol)
    follow(stage, backend, *(keys or (RULE, OTHER_RULE)))
    return backend


def follow(stage: Stage, *backends_and_keys: RouteBackend | KeyRule) -> None:
    backends = [each for each in backends_and_keys if isinstance(each, RouteBackend)]
    keys = tuple(each for each in backends_and_keys if isinstance(each, KeyRule))
    stage.plan(*backends, access=AccessRules(keys_required=True, keys=keys))


def with_key(request: bytes, key: str = KEY) -> bytes:
    return request.replace(b"\r\n", f"\r\nX-API-Key: {key}\r\n".encode(), 1)


async def open_tunnel(stage: Stage, key: str = KEY) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await stage.open()
    writer.write(with_key(UPGRADE, key))
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0)).startswith(b"HTTP/1.1 101 ")
    return reader, writer


def in_flight(stage: Stage) -> int:
    return stage.load().backends["w"].in_flight


async def test_a_websocket_ends_with_its_key_and_others_go_on(stage: Stage) -> None:
    backend = await guarded(stage, echo, protocol="http")
    reader, _ = await open_tunnel(stage)
    kept_reader, kept_writer = await open_tunnel(stage, OTHER)
    assert in_flight(stage) == 2
    follow(stage, backend, OTHER_RULE)
    assert await asyncio.wait_for(reader.read(), 20.0) == b""
    assert in_flight(stage) == 1
    kept_writer.write(b"still")
    assert await asyncio.wait_for(kept_reader.readexactly(5), 20.0) == b"still"


async def test_a_key_of_the_same_name_does_not_stand_in_for_a_revoked_one(stage: Stage) -> None:
    backend = await guarded(stage, echo, protocol="http")
    await open_tunnel(stage)
    follow(stage, backend, KeyRule("ci", "0a1b2c3d", digest_of(OTHER)))
    assert in_flight(stage) == 0


async def test_a_websocket_ends_when_its_key_expires(stage: Stage) -> None:
    await guarded(stage, echo, KeyRule("ci", "0a1b2c3d", digest_of(KEY), expires=2000.0), protocol="http")
    wall = 1000.0
    stage.desk.wall = lambda: wall
    follow(stage, *stage.desk.routes.plan.backends, *stage.desk.routes.plan.access.keys)
    await open_tunnel(stage)
    stage.desk.sweep()
    assert in_flight(stage) == 1
    wall = 2000.0
    stage.desk.sweep()
    assert in_flight(stage) == 0


async def test_a_websocket_that_waits_for_a_replica_is_refused(stage: Stage) -> None:
    stage.plan(access=AccessRules(keys_required=True, keys=(RULE,)), hold_seconds=20.0)
    reader, writer = await stage.open()
    writer.write(with_key(UPGRADE))
    await until(lambda: stage.desk.waiting)
    stage.plan(access=AccessRules(keys_required=True), hold_seconds=20.0)
    answer = await read_answer(reader)
    assert answer.status == 401
    assert REASON in answer.body
    assert not stage.desk.waiting


@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_of_http1_ends_with_its_key(stage: Stage, begun: bool) -> None:
    backend = await guarded(stage, begins if begun else silent)
    reader, writer = await stage.open()
    writer.write(with_key(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"))
    if begun:
        assert await asyncio.wait_for(reader.readuntil(b"1\r\nx\r\n"), 20.0)
    else:
        await until(lambda: in_flight(stage))
    follow(stage, backend, OTHER_RULE)
    assert in_flight(stage) == 0
    if begun:
        assert await asyncio.wait_for(reader.read(), 20.0) == b"", "without the chunk that ends an answer"
    else:
        answer = await read_answer(reader)
        assert answer.status == 401
        assert REASON in answer.body
    assert not stage.desk.budget.used


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("call", [False, True])
async def test_a_stream_of_http2_ends_with_its_key_and_others_go_on(stage: Stage, begun: bool, call: bool) -> None:
    backend = await guarded(stage, begins if begun else silent)
    about = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"h"), *([GRPC] if call else [])]
    reader, writer = await stage.open()
    asks = [encode([*about, (b"x-api-key", key.encode())]) for key in (KEY, OTHER)]
    writer.write(PREFACE + frame.settings({}) + frame.header_frames(1, asks[0], ended=False))
    writer.write(frame.header_frames(3, asks[1], ended=False))
    begins_with = [frame.frame(frame.DATA, 0, number, b"x") for number in (1, 3)]
    said = b""
    async with asyncio.timeout(20.0):
        while begun and not all(each in said for each in begins_with):
            said += await reader.read(1000)
    await until(lambda: in_flight(stage) == 2)
    follow(stage, backend, OTHER_RULE)
    assert in_flight(stage) == 1
    expected = b"%b" % REASON if call or not begun else frame.rst_stream(1, Http2ErrorCode.INTERNAL_ERROR)
    async with asyncio.timeout(20.0):
        while expected not in said:
            said += await reader.read(1000)
    guest = next(iter(stage.desk.guests))
    assert list(guest.streams) == [3]
