"""Lines of the access log for gRPC calls and WebSockets."""

from __future__ import annotations

import asyncio

import pytest
from router_stage import Stage, until
from test_access_log import logged
from test_revoked import KEY, RULE, with_key
from test_streams import UPGRADE, call, echo

from fairway.state.serving.access import AccessRules
from fairway.state.serving.route import WHOLE, RouteBackend, RouteObservation


@pytest.mark.parametrize(("status", "counts_as", "code"), [(200, 502, 2), (400, 400, 3), (429, 429, 8), (500, 500, 13)])
async def test_a_call_has_its_status_of_grpc(stage: Stage, status: int, counts_as: int, code: int) -> None:
    sink, log = await logged(stage)
    replica = await stage.one(observed=RouteObservation(access=WHOLE))
    replica.status = status
    await call(stage)
    await log.close()
    (line,) = sink.lines
    assert (line["grpc_status"], line["path"]) == (code, "/inference.GRPCInferenceService/ModelInfer")
    assert line["status"] == counts_as


@pytest.mark.parametrize(("code", "counts_as"), [(0, 200), (5, 404), (14, 503)])
async def test_a_call_has_the_status_that_its_replica_gave(stage: Stage, code: int, counts_as: int) -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: %d\r\ncontent-length: 5\r\n\r\n"
        writer.write(head % code + b"\0\0\0\0\0")
        await writer.drain()
        await reader.read()

    sink, log = await logged(stage)
    stage.plan(await stage.play(play), observed=RouteObservation(access=WHOLE))
    await call(stage)
    await log.close()
    assert [(line["status"], line["grpc_status"]) for line in sink.lines] == [(counts_as, code)]


async def test_a_call_that_no_replica_takes(stage: Stage) -> None:
    sink, log = await logged(stage)
    stage.plan(hold_seconds=0.01, observed=RouteObservation(access=WHOLE))
    await call(stage)
    await log.close()
    assert [(line["status"], line["grpc_status"]) for line in sink.lines] == [(503, 14)]


async def test_a_websocket_has_a_line_at_its_end(stage: Stage) -> None:
    sink, log = await logged(stage)
    backend = RouteBackend("ws", 1, (await stage.play(echo)).address, "http")
    access = AccessRules(keys_required=True, keys=(RULE,))
    stage.plan(backend, access=access, observed=RouteObservation(access=WHOLE))
    reader, writer = await stage.open()
    writer.write(with_key(UPGRADE))
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0)
    writer.write(b"12345")
    await asyncio.wait_for(reader.readexactly(5), 20.0)
    writer.close()
    await until(lambda: not stage.desk.guests)
    await log.close()
    (line,) = sink.lines
    assert (line["status"], line["path"], line["replica"], line["key"], line["bytes_in"]) == (101, "/ws", "ws", "ci", 5)
    assert line["bytes_out"] > 5
    assert KEY.encode() not in sink.data
