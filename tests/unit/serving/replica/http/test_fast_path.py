"""A connection that has ended is freed at once, whatever it was doing."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Iterator

import pytest
from small_models import Told, app_of, signature
from uvicorn.config import Config
from uvicorn.server import ServerState

from fairway.serving.replica.http.fast_path import FastPathConnection

QUESTION = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1.0]}]}'
INFER = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(QUESTION), QUESTION)
PAGE = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable the garbage collector, so that only reference counts free objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    ("sent", "answers"),
    [(INFER, 1), (PAGE, 1), (PAGE + INFER, 2), (INFER + PAGE, 2), (INFER[:-5], 0), (b"GET / HT", 0)],
    ids=["infer", "page", "page-infer", "infer-page", "half-body", "half-head"],
)
async def test_nothing_keeps_a_connection_that_has_ended(sent: bytes, answers: int, reset: bool) -> None:
    app = app_of(Told(signature(x=("FP32", [-1, 1]), out_y=("FP32", [-1, 1])), lambda inputs: [2 * inputs[0]]))
    state, config = ServerState(), Config(app, http=FastPathConnection, ws="none", lifespan="off")
    lanes: list[weakref.ref[FastPathConnection]] = []

    def made() -> FastPathConnection:
        lane = FastPathConnection(config, state, {})
        lanes.append(weakref.ref(lane))
        return lane

    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(sent)
        for _ in range(answers):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length"))
            await reader.readexactly(length)
        if reset:
            wire: socket.socket = writer.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        async with asyncio.timeout(10):
            while not lanes or state.connections or any(lane() is not None for lane in lanes):
                await asyncio.sleep(0.001)
    finally:
        server.close()
