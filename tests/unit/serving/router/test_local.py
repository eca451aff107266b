"""The daemon's side on the daemon's loop (uvloop); the suite in tests/conformance runs on the standard library's."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from router_stage import Stage

from fairway.app.system import SystemClock
from fairway.serving.router.local import LocalRouter
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
