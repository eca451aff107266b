"""A router under clients that cost as much as they can: its memory stays below a stated figure, and others get responses."""

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

from fairway.app.system.clock import SystemClock
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.serving.router.routing.router_state import RouterLimits
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan

HERE = Path(__file__).parent / "router"
KINDS = ("slow_head", "slow_body", "huge", "deaf", "ahead", "half")
BASE = 96_000_000
"""The router's own memory: an interpreter and its imports, with room for the allocator."""
EACH = 256 * 1024
"""The most that a connection may cost."""
REQUEST = b"POST /quick HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000\r\n\r\n" + b"i" * 3000


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[str]:
    """Start `hostile.py`; return the process and its first line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, HERE / "hostile.py", *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60.0):
            line = await process.stdout.readline()
        yield line.decode().strip()
    finally:
        process.kill()
        await process.wait()
        process._transport.close()


class World:
    """A separate router, named after its service."""

    def __init__(self, router: LocalRouter, runtime: Path, service: str) -> None:
        self.router, self.runtime, self.service = router, runtime, service
        self.port = 0
        self.process = 0

    async def put(self, *addresses: str) -> None:
        known = {path.stem for path in self.runtime.glob("*/*.sock")}
        backends = tuple(RouteBackend(f"r{number}", 1, address) for number, address in enumerate(addresses))
        self.port = await self.router.put(RoutePlan(self.service, backends, ((1, WHOLE),), hold_limit=10_000))
        for path in self.runtime.glob("*/*.sock"):
            if path.stem not in known:
                self.process = int(path.stem)

    def memory(self) -> int:
        """Return the peak memory of the router's process, in bytes."""
        status = Path(f"/proc/{self.process}/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    async def ask(self, number: int, clients: int = 4) -> list[float]:
        """Return the seconds that this many small requests take."""
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
        """Return the peak, once it no longer grows."""
        before = -1
        while before != (before := self.memory()):
            await asyncio.sleep(1.0)
        return before


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[tuple[LocalRouter, Path]]:
    runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
    made = LocalRouter(tmp_path, runtime, SystemClock())
    await made.start(lambda: None)
    yield made, runtime
    for service in await made.kept():
        await made.drop(service)
    await made.close()
    shutil.rmtree(runtime)


@pytest.fixture
def world(router: tuple[LocalRouter, Path]) -> World:
    return World(*router, "default/x")


@pytest.fixture
def twin(router: tuple[LocalRouter, Path]) -> World:
    """A router without hostile clients, measured in turns with the other: other load on the machine slows both alike."""
    return World(*router, "default/twin")


def bound(clients: int) -> int:
    return BASE + RouterLimits().kept + clients * EACH


async def beside_hostile(world: World, twin: World, clients: int, rounds: int) -> tuple[list[float], list[float], int]:
    """Return the latencies alone and beside hostile clients, and the peak of memory."""
    alone: list[float] = []
    beside: list[float] = []
    async with started("backend") as port, started("backend") as other:
        await world.put(f"127.0.0.1:{port}")
        await twin.put(f"127.0.0.1:{other}")
        async with started(str(world.port), str(clients), ",".join(KINDS)):
            peak = await world.settled()
            for _ in range(rounds):
                alone += await twin.ask(40)
                beside += await world.ask(40)
            return alone, beside, max(peak, world.memory())


async def while_nothing_is_ready(world: World, clients: int) -> int:
    """Return the peak of memory when this many requests of a megabyte wait for the first replica."""
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


async def test_a_hundred(world: World, twin: World) -> None:
    _, beside, peak = await beside_hostile(world, twin, 100, 5)
    assert len(beside) == 200
    assert peak < bound(100)


async def test_two_hundred_that_wait(world: World) -> None:
    assert await while_nothing_is_ready(world, 200) < bound(200)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_thousand(world: World, twin: World) -> None:
    alone, beside, peak = await beside_hostile(world, twin, 1_000, 100)
    rounds = [(alone[at : at + 40], beside[at : at + 40]) for at in range(0, len(alone), 40)]
    ratio = statistics.median(statistics.median(slow) / statistics.median(usual) for usual, slow in rounds)
    tail = statistics.quantiles(beside, n=20)[-1] / statistics.quantiles(alone, n=20)[-1]
    print(f"\n1,000 hostile clients: peak {peak / 1e6:.0f} MB of {bound(1_000) / 1e6:.0f} MB allowed")
    print(f"others: median {1e3 * statistics.median(beside):.2f} ms, {ratio:.2f} times alone in a round; p95 {tail:.2f} times")
    assert peak < bound(1_000)
    assert ratio < 2.0


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_thousand_that_wait(world: World) -> None:
    peak = await while_nothing_is_ready(world, 1_000)
    print(f"\n1,000 requests of a megabyte that wait: peak {peak / 1e6:.0f} MB of {bound(1_000) / 1e6:.0f} MB allowed")
    assert peak < bound(1_000)
