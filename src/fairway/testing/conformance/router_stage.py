"""A `RouterWorld` with real sockets in front of and behind the router."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from fairway.app.port.serving import ServiceRouter
from fairway.state.serving.route import RouteBackend
from fairway.testing.conformance.router_conformance import RouterReply
from fairway.testing.fake.fake_replica import FakeReplica


class LocalRouterStage:
    """A router created by `make`, replicas on this machine, and clients that open one connection for each request."""

    def __init__(self, make: Callable[[], ServiceRouter], *, exact: bool, holds: bool) -> None:
        self._make = make
        self.exact = exact
        self.holds = holds
        self.router = make()
        self.woken = asyncio.Event()
        self._replicas: dict[str, FakeReplica] = {}

    async def backend(self, name: str, revision: int) -> RouteBackend:
        replica = self._replicas[name] = FakeReplica(name, revision)
        return await replica.start()

    async def refuse(self, backend: RouteBackend) -> None:
        await self._replicas[backend.name].stop()

    async def answer(self, backend: RouteBackend, status: int) -> None:
        self._replicas[backend.name].status = status

    async def ask(self, port: int, headers: Mapping[str, str] | None = None) -> RouterReply:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        fixed_headers = "Host: localhost\r\nConnection: close\r\nContent-Length: 4\r\n"
        writer.write(f"POST /v2/x HTTP/1.1\r\n{fixed_headers}{lines}\r\nbody".encode())
        answer = (await reader.read()).decode()
        writer.close()
        head, _, body = answer.partition("\r\n\r\n")
        answer_headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
        name = body.partition('"name":"')[2].partition('"')[0]
        revision = answer_headers.get("fairway-revision")
        return RouterReply(int(head.split(" ")[1]), name, None if revision is None else int(revision))

    async def ask_raw(self, port: int) -> tuple[int, str]:
        """Return the status and the full text of an answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        return int(answer.split(" ")[1]), answer

    async def status_at(self, port: int, host: str) -> int:
        """Return the status of a request with this Host header."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ")[1])

    async def copies(self, backend: RouteBackend, number: int) -> None:
        await self._replicas[backend.name].wait_for(number)

    async def restart(self) -> None:
        await self.router.close()
        self.router = self._make()
        await self.router.start(self.woken.set)

    async def end(self) -> None:
        """Drop all services and close the router and the replicas."""
        for service in await self.router.kept():
            await self.router.drop(service)
        await self.router.close()
        for replica in self._replicas.values():
            await replica.stop()
