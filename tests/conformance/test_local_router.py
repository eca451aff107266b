"""The local router keeps the port's contract, with real processes and sockets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairway.app.system.clock import SystemClock
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.testing.conformance.router_conformance import RouterConformance
from fairway.testing.conformance.router_stage import LocalRouterStage
from fairway.testing.conformance.site_conformance import SiteConformance


class TestLocalRouter(RouterConformance, SiteConformance):
    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[LocalRouterStage]:
        runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))  # a short path: Unix sockets allow 107 bytes
        world = LocalRouterStage(lambda: LocalRouter(tmp_path / "routers", runtime, SystemClock()), exact=True, holds=True)
        await world.router.start(world.woken.set)
        yield world
        await world.end()
        shutil.rmtree(runtime)
