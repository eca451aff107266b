"""The fake router that tests use keeps the port's contract too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from fairway.app.system.clock import SystemClock
from fairway.state.serving.route import RouteBackend
from fairway.testing.conformance.router_conformance import RouterConformance, RouterReply
from fairway.testing.fake.fake_router import FakeNetwork, FakeRouter


class FakeWorld:
    exact = True
    holds = True

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.network = FakeNetwork()
        self.router = FakeRouter(self.network, self.clock)
        self.woken = asyncio.Event()

    async def backend(self, name: str, revision: int) -> RouteBackend:
        return RouteBackend(name, revision, "127.0.0.1:1")

    async def refuse(self, backend: RouteBackend) -> None:
        self.network.answers[backend.name] = (0, 0.0)

    async def answer(self, backend: RouteBackend, status: int) -> None:
        self.network.answers[backend.name] = (status, 0.01)

    async def ask(self, port: int, headers: Mapping[str, str] | None = None) -> RouterReply:
        reply = await self.network.ask(self.clock, port, headers)
        return RouterReply(reply.status, reply.backend, reply.revision)

    async def copies(self, backend: RouteBackend, number: int) -> None:
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
