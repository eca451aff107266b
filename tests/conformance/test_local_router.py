"""The router of this machine keeps the promises: real processes, real sockets."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from fairway.app.system import SystemClock
from fairway.serving.router.local import LocalRouter
from fairway.state.route import Backend
from fairway.testing.fake_replica import FakeReplica
from fairway.testing.router_conformance import Reply, RouterConformance


class LocalWorld:
    exact = True
    holds = True

    def __init__(self, folder: Path, runtime: Path) -> None:
        self._folder, self._runtime = folder, runtime
        self.router = self._make()
        self.woken = asyncio.Event()
        self.replicas: dict[str, FakeReplica] = {}

    def _make(self) -> LocalRouter:
        return LocalRouter(self._folder, self._runtime, SystemClock())

    async def backend(self, name: str, revision: int) -> Backend:
        replica = self.replicas[name] = FakeReplica(name, revision)
        return await replica.start()

    async def refuse(self, backend: Backend) -> None:
        await self.replicas[backend.name].stop()

    async def answer(self, backend: Backend, status: int) -> None:
        self.replicas[backend.name].status = status

    async def ask(self, port: int, headers: Mapping[str, str] | None = None) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        writer.write(f"POST /v2/x HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{lines}Content-Length: 4\r\n\r\nbody".encode())
        answer = (await reader.read()).decode()
        writer.close()
        head, _, body = answer.partition("\r\n\r\n")
        found = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
        name = body.partition('"name":"')[2].partition('"')[0]
        revision = found.get("fairway-revision")
        return Reply(int(head.split(" ")[1]), name, None if revision is None else int(revision))

    async def copies(self, backend: Backend, number: int) -> None:
        await self.replicas[backend.name].wait_for(number)

    async def restart(self) -> None:
        await self.router.close()
        self.router = self._make()
        await self.router.start(self.woken.set)

    async def end(self) -> None:
        for service in await self.router.kept():
            await self.router.drop(service)
        await self.router.close()
        for replica in self.replicas.values():
            await replica.stop()


class TestLocalRouter(RouterConformance):
    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[LocalWorld]:
        runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))  # a short path: Unix sockets allow 107 bytes
        world = LocalWorld(tmp_path / "routers", runtime)
        await world.router.start(world.woken.set)
        yield world
        await world.end()
        shutil.rmtree(runtime)
