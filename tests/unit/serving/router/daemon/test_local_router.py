"""The daemon's side on the daemon's loop (uvloop); the suite in tests/conformance uses the standard library's."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from router_stage import Stage

from fairway.app.system.clock import SystemClock
from fairway.errors import ConflictError
from fairway.serving.router.daemon import local_router
from fairway.serving.router.daemon.local_router import LocalRouter
from fairway.serving.router.router_folder import SERVICE, home_of, short_folder, write
from fairway.serving.router.wire_format import encode_load
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import WHOLE, RoutePlan


async def test_a_service_comes_and_goes(stage: Stage, tmp_path: Path) -> None:
    replica = await stage.replica()
    runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
    router = LocalRouter(tmp_path, runtime, SystemClock())
    await router.start(lambda: None)
    stage.port = await router.put(RoutePlan("default/mnist", (replica.backend,), ((1, WHOLE),)))
    assert (await stage.ask(method="POST", body=b"abc")).status == 200
    assert (await router.look())["default/mnist"].revisions[1].answered == 1
    await router.drop("default/mnist")
    assert await router.kept() == []
    await router.close()
    shutil.rmtree(runtime)


async def test_one_router_that_reports_nonsense_leaves_the_others_to_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = encode_load(RouteLoad(time=0.0, epoch="e", arrived=7))
    bad = b'{"time":0,"epoch":"e","revisions":{"1":{"outcomes":{"x":[1,null,null]}}}}'
    router = LocalRouter(tmp_path / "homes", tmp_path / "run", SystemClock())
    said = {}
    for service, answer in (("default/bad", bad), ("default/good", good)):
        home = home_of(tmp_path / "homes", service)
        home.mkdir(parents=True)
        write(home / SERVICE, service.encode())
        sockets = short_folder(tmp_path / "run", home)
        sockets.mkdir(parents=True)
        (sockets / "1.sock").touch()
        said[sockets / "1.sock"] = answer

    async def ask(path: Path, line: bytes, within: float) -> bytes:
        return said[path]

    monkeypatch.setattr(local_router, "_ask", ask)
    found = await router.look()
    assert {service: load.arrived for service, load in found.items()} == {"default/good": 7}


async def test_a_service_that_never_listened_has_lost_no_process(tmp_path: Path) -> None:
    router = LocalRouter(tmp_path / "homes", tmp_path / "run", SystemClock())
    for service, port in (("default/never", b""), ("default/lost", b"1")):
        home = home_of(tmp_path / "homes", service)
        home.mkdir(parents=True)
        write(home / SERVICE, service.encode())
        if port:
            write(home / "port", port)
    assert list(await router.troubles()) == ["default/lost"]


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[LocalRouter]:
    runtime = Path(tempfile.mkdtemp(prefix="fw-", dir="/tmp"))
    made = LocalRouter(tmp_path / "routers", runtime, SystemClock())
    await made.start(lambda: None)
    yield made
    for service in await made.kept():
        await made.drop(service)
    await made.close()
    shutil.rmtree(runtime)


async def test_a_port_that_is_taken(stage: Stage, router: LocalRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is reported at once, without starting a process, with port, holder and fix, until the port is free."""
    replica = await stage.replica()
    listen = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", listen], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        port = int(holder.stdout.readline())
        plan = RoutePlan("default/mnist", (replica.backend,), ((1, WHOLE),), port=port)
        with monkeypatch.context() as patched:
            patched.setattr(local_router, "_run", None)
            with pytest.raises(ConflictError, match=rf"default/mnist: .*:{port}: .* by process {holder.pid} \(python") as refused:
                await router.put(plan)
        assert "--port N" in refused.value.fix
        assert await router.kept() == []
        await router.drop("default/mnist")
        await router.drop("default/mnist")
        await router.drop("default/never")
        holder.stdin.close()
    stage.port = await router.put(plan)
    assert stage.port == port
    assert (await stage.ask()).status == 200
    with pytest.raises(ConflictError, match=f":{port}: the port is taken by the service default/mnist"):
        await router.put(RoutePlan("default/other", (replica.backend,), ((1, WHOLE),), port=port))
    await router.drop("default/other")


async def test_a_service_that_cannot_move_stays_and_follows_its_routes(stage: Stage, router: LocalRouter) -> None:
    before, after = await stage.replica("before"), await stage.replica("after")
    stage.port = await router.put(RoutePlan("default/mnist", (before.backend,), ((1, WHOLE),)))
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        plan = RoutePlan("default/mnist", (after.backend,), ((1, WHOLE),), port=port)
        for _ in range(2):
            with pytest.raises(ConflictError, match=f":{port}: the port is taken by this daemon itself"):
                await router.put(plan)
        assert (await stage.ask()).status == 200
        assert len(after.asked) == 1
    stage.port = await router.put(plan)
    assert stage.port == port
    assert (await stage.ask()).status == 200


async def test_names_of_sockets_that_a_crash_left_hold_up_no_drop(router: LocalRouter, tmp_path: Path) -> None:
    home = home_of(tmp_path / "routers", "default/mnist")
    home.mkdir(parents=True)
    write(home / SERVICE, b"default/mnist")
    sockets = short_folder(router._runtime, home)
    sockets.mkdir()
    with socket.socket(socket.AF_UNIX) as pipe:
        pipe.bind(str(sockets / "1.sock"))
    assert await router.kept() == ["default/mnist"]
    async with asyncio.timeout(5.0):
        await router.drop("default/mnist")
    assert await router.kept() == []
