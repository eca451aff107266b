"""A router in this process, with its clients and backends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fairway.serving.router.http1_client import Http1ClientConnection
from fairway.serving.router.routing.router_state import RouterLimits, RouterState
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan
from fairway.testing.fake.fake_replica import FakeReplica

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Answer:
    """An answer, parsed."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.lines = [line.partition(": ")[::2] for line in lines]
        self.headers = {name.lower(): value for name, value in self.lines}


class Stage:
    """The router is `desk`; clients connect with `open` and `talk`."""

    def __init__(self) -> None:
        self.wakes = 0
        self.desk: RouterState
        self.port = 0
        self._servers: list[asyncio.Server] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._replicas: list[FakeReplica] = []

    async def start(self, limits: RouterLimits = RouterLimits()) -> None:
        self.desk = RouterState("epoch", limits, self._wake)
        server = await asyncio.get_running_loop().create_server(lambda: Http1ClientConnection(self.desk), "127.0.0.1", 0)
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]
        self.plan()

    async def end(self) -> None:
        for writer in self._writers:
            writer.close()
        for replica in self._replicas:
            replica.gate.set()
            await replica.stop()
        comparer = self.desk.comparer
        self.desk.put(RoutePlan("a/b"))
        if comparer is not None:
            await comparer.wait_closed()
        for server in self._servers:
            server.close()
        for guest in list(self.desk.guests):
            guest.close_idle()

    def _wake(self) -> None:
        self.wakes += 1

    def plan(self, *backends: RouteBackend, **more: object) -> None:
        weights = more.pop("weights", tuple((backend.revision, WHOLE) for backend in backends))
        self.desk.put(RoutePlan("a/b", backends, weights, **more))  # type: ignore[arg-type]

    async def replica(self, name: str = "a", revision: int = 1) -> FakeReplica:
        replica = FakeReplica(name, revision)
        self._replicas.append(replica)
        await replica.start()
        return replica

    async def one(self, **more: object) -> FakeReplica:
        """Start a replica and plan it."""
        replica = await self.replica()
        self.plan(replica.backend, **more)
        return replica

    async def play(self, play: Play, name: str = "raw", revision: int = 1) -> RouteBackend:
        """Start a backend whose connections are handled by a function of the test."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await play(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        return RouteBackend(name, revision, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        self._writers.append(writer)
        return reader, writer

    async def talk(self, raw: bytes) -> bytes:
        """Send bytes, and read until the router closes."""
        reader, writer = await self.open()
        writer.write(raw)
        return await asyncio.wait_for(reader.read(), 20.0)

    async def ask(self, *lines: str, method: str = "GET", body: bytes = b"", version: str = "1.1") -> Answer:
        """Send a request on its own connection."""
        length = [f"Content-Length: {len(body)}"] if body else []
        text = "\r\n".join([f"{method} /x HTTP/{version}", "Host: localhost", "Connection: close", *lines, *length, "", ""])
        return Answer(await self.talk(text.encode() + body))

    def load(self):
        return self.desk.load(0.0)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read an answer with a length."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20.0)
    answer = Answer(head)
    answer.body = await asyncio.wait_for(reader.readexactly(int(answer.headers.get("content-length", "0"))), 20.0)
    return answer


async def until(is_so: Callable[[], object]) -> None:
    """Wait for something that will happen on this loop soon."""
    async with asyncio.timeout(20.0):
        while not is_so():
            await asyncio.sleep(0.005)
