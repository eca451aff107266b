"""A router under clients that cost as much as they can: its memory stays below a stated figure, and others are answered."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairway.app.system import SystemClock
from fairway.serving.router.desk import Limits
from fairway.serving.router.local import LocalRouter
from fairway.state.route import WHOLE, Backend, RoutePlan

HERE = Path(__file__).parent / "router"
KINDS = ("slow_head", "slow_body", "huge", "deaf", "ahead", "half")
BASE = 96_000_000
"""What a router needs by itself: an interpreter and what it imports, with room for the allocator."""
EACH = 256 * 1024
"""What a connection may cost, at most."""
REQUEST = b"POST /quick HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000\r\n\r\n" + b"i" * 3000


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[str]:
    """A process of `hostile.py`, and its first line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, HERE / "hostile.py", *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60.0):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()
        process._transport.close()


class World:
    def __init__(self, router: LocalRouter, runtime: Path) -> None:
        self.router, self.runtime = router, runtime
        self.port = 0

    async def put(self, *addresses: str) -> None:
        backends = tuple(Backend(f"r{number}", 1, address) for number, address in enumerate(addresses))
        self.port = await self.router.put(RoutePlan("default/x", backends, ((1, WHOLE),), hold_limit=10_000))

    def memory(self) -> int:
        """The most that the router's process has had, in bytes."""
        (path,) = self.runtime.glob("*/*.sock")
        status = Path(f"/proc/{path.stem}/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    async def ask(self, number: int, clients: int = 4) -> list[float]:
        """Seconds of so many small requests."""
        took: list[float] = []

        async def one() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            for _ in range(number // clients):
                began = time.perf_counter()
                writer.write(REQUEST)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                await reader.readexactly(20)
                took.append(time.perf_counter() - began)
            writer.close()

        await asyncio.gather(*(one() for _ in range(clients)))
        return took

    async def settled(self) -> int:
        """The peak, once it no longer grows."""
        before = -1
        while before != (before := self.memory()):
            await asyncio.sleep(1.0)
        return before


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
    router = LocalRouter(tmp_path, runtime, SystemClock())
    await router.start(lambda: None)
    yield World(router, runtime)
    await router.drop("default/x")
    await router.close()
    shutil.rmtree(runtime)


def bound(clients: int) -> int:
    return BASE + Limits().kept + clients * EACH


async def beside_hostile(world: World, clients: int, requests: int) -> tuple[list[float], list[float], int]:
    """Latencies alone (before and after) and beside hostile clients, and the peak of memory."""
    async with started("backend") as port:
        await world.put(f"127.0.0.1:{port}")
        await world.ask(200)
        alone = await world.ask(requests)
        async with started(str(world.port), str(clients), ",".join(KINDS)):
            await world.ask(200)
            beside = await world.ask(requests)
            peak = await world.settled()
            beside += await world.ask(requests)
        alone += await world.ask(requests)
        return alone, beside, peak


async def while_nothing_is_ready(world: World, clients: int) -> int:
    """The peak of memory when so many requests of a megabyte wait for the first replica."""
    await world.put()
    async with started(str(world.port), str(clients), "held"):
        peak = await world.settled()
        load = (await world.router.look())["default/x"]
        assert load.held > 0
        assert load.held + load.expired >= clients * 9 // 10
        async with started("backend") as port:
            await world.put(f"127.0.0.1:{port}")
            await world.ask(100)
        return max(peak, world.memory())


async def test_a_hundred(world: World) -> None:
    _, beside, peak = await beside_hostile(world, 100, 200)
    assert len(beside) == 400
    assert peak < bound(100)


async def test_two_hundred_that_wait(world: World) -> None:
    assert await while_nothing_is_ready(world, 200) < bound(200)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_thousand(world: World) -> None:
    alone, beside, peak = await beside_hostile(world, 1_000, 4_000)
    ratio = statistics.median(beside) / statistics.median(alone)
    tail = statistics.quantiles(beside, n=20)[-1] / statistics.quantiles(alone, n=20)[-1]
    print(f"\n1,000 hostile clients: peak {peak / 1e6:.0f} MB of {bound(1_000) / 1e6:.0f} MB allowed")
    print(f"others: median {1e3 * statistics.median(beside):.2f} ms, {ratio:.2f} times alone; p95 {tail:.2f} times alone")
    assert peak < bound(1_000)
    assert ratio < 2.0


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_thousand_that_wait(world: World) -> None:
    peak = await while_nothing_is_ready(world, 1_000)
    print(f"\n1,000 requests of a megabyte that wait: peak {peak / 1e6:.0f} MB of {bound(1_000) / 1e6:.0f} MB allowed")
    assert peak < bound(1_000)
