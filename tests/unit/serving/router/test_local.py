"""The daemon's side on the daemon's loop (uvloop); the suite in tests/conformance runs on the standard library's."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from router_stage import Stage

from fairway.app.system import SystemClock
from fairway.serving.router import local
from fairway.serving.router.home import SERVICE, home_of, short_folder, write
from fairway.serving.router.local import LocalRouter
from fairway.serving.router.wire import encode_load
from fairway.state.load import RouteLoad
from fairway.state.route import WHOLE, RoutePlan


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

    async def ask(path: Path, line: bytes) -> bytes:
        return said[path]

    monkeypatch.setattr(local, "_ask", ask)
    found = await router.look()
    assert {service: load.arrived for service, load in found.items()} == {"default/good": 7}
