"""Envoy keeps the port's contract too, except for holding requests while there is no replica."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairway.app.system.clock import SystemClock
from fairway.serving.router.envoy.envoy_router import EnvoyRouter
from fairway.state.serving.route import WHOLE, RoutePlan
from fairway.testing.conformance.router_conformance import SERVICE, RouterConformance
from fairway.testing.conformance.router_stage import LocalRouterStage
from fairway.testing.conformance.site_conformance import SiteConformance

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def program() -> Path:
    made = subprocess.run([ROOT / "scripts" / "framework-venv", "proxies"], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode and not os.environ.get("CI"):
        pytest.skip("the environment of proxies cannot be installed here")
    (found,) = (Path(made.stdout.strip()).parents[1] / "lib").glob("*/site-packages/envoy/_bin/envoy")
    return found


@pytest.mark.framework("proxies")
class TestEnvoyRouter(RouterConformance, SiteConformance):
    @pytest.fixture
    async def world(self, tmp_path: Path, program: Path) -> AsyncIterator[LocalRouterStage]:
        runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
        world = LocalRouterStage(
            lambda: EnvoyRouter(program, tmp_path / "routers", runtime, SystemClock()), exact=False, holds=False
        )
        await world.router.start(world.woken.set)
        yield world
        await world.end()
        shutil.rmtree(runtime)

    async def test_nobody_waits_and_the_answer_says_why(self, world: LocalRouterStage) -> None:
        port = await world.router.put(RoutePlan(SERVICE, weights=((1, WHOLE),)))
        status, text = await world.ask_raw(port)
        assert status == 503
        assert "min 0" in text
        await world.router.put(RoutePlan(SERVICE, (await world.backend("a", 1),), ((1, WHOLE),)))
        assert (await world.ask(port)).status == 200
