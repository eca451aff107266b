"""The router of this machine keeps the promises: real processes, real sockets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairway.app.system import SystemClock
from fairway.serving.router.local import LocalRouter
from fairway.testing.router_conformance import RouterConformance
from fairway.testing.router_world import LocalWorld
from fairway.testing.site_conformance import SiteConformance


class TestLocalRouter(RouterConformance, SiteConformance):
    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[LocalWorld]:
        runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))  # a short path: Unix sockets allow 107 bytes
        world = LocalWorld(lambda: LocalRouter(tmp_path / "routers", runtime, SystemClock()), exact=True, holds=True)
        await world.router.start(world.woken.set)
        yield world
        await world.end()
        shutil.rmtree(runtime)
