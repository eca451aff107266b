"""The router that tests use instead keeps the promises too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from fairway.app.system import SystemClock
from fairway.state.route import Backend
from fairway.testing.fake_router import FakeNetwork, FakeRouter
from fairway.testing.router_conformance import Reply, RouterConformance


class FakeWorld:
    exact = True
    holds = True

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.network = FakeNetwork()
        self.router = FakeRouter(self.network, self.clock)
        self.woken = asyncio.Event()

    async def backend(self, name: str, revision: int) -> Backend:
        return Backend(name, revision, "127.0.0.1:1")

    async def refuse(self, backend: Backend) -> None:
        self.network.answers[backend.name] = (0, 0.0)

    async def answer(self, backend: Backend, status: int) -> None:
        self.network.answers[backend.name] = (status, 0.01)

    async def ask(self, port: int, headers: Mapping[str, str] | None = None) -> Reply:
        reply = await self.network.ask(self.clock, port, headers)
        return Reply(reply.status, reply.backend, reply.revision)

    async def copies(self, backend: Backend, number: int) -> None:
        assert self.network.mirrored.count(backend.name) == number

    async def restart(self) -> None:
        await self.router.close()
        self.router = FakeRouter(self.network, self.clock)
        await self.router.start(self.woken.set)


class TestFakeRouter(RouterConformance):
    @pytest.fixture
    async def world(self) -> FakeWorld:
        world = FakeWorld()
        await world.router.start(world.woken.set)
        return world
