"""Looking at replicas over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairway.app.service_ports import Watched
from fairway.app.system import SystemClock
from fairway.serving.watch import HttpWatch, fetch

LOAD = b'{"served": 7, "busy_seconds": 1.5, "queue": 2, "later": "unknown"}'


class Replica:
    """A server that answers what it is told to."""

    def __init__(self) -> None:
        self.status = 200
        self.server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = LOAD if b"/fairway/load" in head else b"x"
        writer.write(f"HTTP/1.1 {self.status} Fine\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()


class Waking:
    """Counts how often the watch called."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def __call__(self) -> None:
        self.event.set()

    async def called(self) -> None:
        await asyncio.wait_for(self.event.wait(), 10)
        self.event.clear()


@asynccontextmanager
async def watching() -> AsyncIterator[tuple[HttpWatch, Waking, Replica]]:
    watch, waking, replica = HttpWatch(SystemClock()), Waking(), Replica()
    await replica.open()
    watch.start(waking)
    try:
        yield watch, waking, replica
    finally:
        await watch.close()
        await replica.close()


async def test_a_replica_that_answers_is_ready_and_says_how_busy_it_is() -> None:
    async with watching() as (watch, waking, replica):
        watch.follow({"a": Watched(f"127.0.0.1:{replica.port}", "/ready", tells_load=True)})
        await waking.called()
        seen = watch.seen()["a"]
        assert seen.ready
        assert seen.load is not None
        assert (seen.load.served, seen.load.busy_seconds, seen.load.queue) == (7, 1.5, 2)


async def test_one_that_appears_later_is_seen_at_once_and_so_is_its_going() -> None:
    async with watching() as (watch, waking, replica):
        await replica.close()
        watch.follow({"a": Watched(f"127.0.0.1:{replica.port}", "/", tells_load=False)})
        await asyncio.sleep(0)
        assert not any(sight.ready for sight in watch.seen().values())
        await replica.open()
        await waking.called()
        assert watch.seen()["a"].ready
        assert watch.seen()["a"].load is None
        await replica.close()
        await waking.called()
        assert not watch.seen()["a"].ready


async def test_another_status_than_200_is_not_ready_and_what_is_not_followed_is_forgotten() -> None:
    async with watching() as (watch, waking, replica):
        replica.status = 503
        watch.follow({"a": Watched(f"127.0.0.1:{replica.port}", "/", tells_load=False)})
        while "a" not in watch.seen():
            await asyncio.sleep(0.01)
        assert not watch.seen()["a"].ready
        replica.status = 200
        await waking.called()
        assert watch.seen()["a"].ready
        watch.follow({})
        assert watch.seen() == {}


async def test_an_answer_that_is_none_is_an_error() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"hello\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        status, _ = await fetch(address, "/")
    assert status == 0
    with pytest.raises(OSError, match="onnect"):
        await fetch(address, "/")
