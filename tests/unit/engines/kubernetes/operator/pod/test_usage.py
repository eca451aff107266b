"""Resource usage of pods, as far as metrics are available."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.app.port.port import TaskUsage
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.agent.gpu_usage import GpuUsageServer
from fairway.engines.kubernetes.agent.token_review import TOKEN_FILE
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import GpuNode, Pod
from fairway.engines.kubernetes.operator.pod import usage
from fairway.state.task import TaskKey

KEY, OTHER = TaskKey("team", "mnist", "worker", 0, 0), TaskKey("team", "mnist", "worker", 1, 0)


def pod(name: str, devices: str = "", phase: str = "Running") -> Pod:
    noted = {annotation.GPU_IDS: devices} if devices else {}
    metadata = {"name": name, "namespace": "team", "annotations": noted}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": phase}}, Pod)


class Metrics:
    """A cluster that returns these pod metrics."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self._items = items

    async def plain(self, path: str) -> dict[str, Any]:
        assert path == "/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"
        if not self._items:
            raise errors.NotFound("nobody measures", fix="install metrics-server", asked="read", http=404)
        return {"items": self._items}


async def test_where_nobody_says_anything_nothing_is_known() -> None:
    assert await usage.look(Metrics(), {KEY: pod("a")}, None) == {}  # type: ignore[arg-type]


async def test_processors_and_memory_of_those_that_run() -> None:
    used = [{"usage": {"cpu": "250m", "memory": "1Gi"}}, {"usage": {"cpu": "500000000n", "memory": "1024Ki"}}]
    metrics = Metrics({"metadata": {"name": "a"}, "containers": used}, {"metadata": {"name": "b"}, "containers": used})
    found = await usage.look(metrics, {KEY: pod("a"), OTHER: pod("b", phase="Succeeded")}, None)  # type: ignore[arg-type]
    assert found == {KEY: TaskUsage(0.75, (1 << 30) + (1 << 20))}


async def test_its_devices_are_asked_of_their_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("mine\n")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))

    async def known(token: str) -> bool:
        return token == "mine"

    async def use() -> dict[str, float]:
        return {"x": 0.5, "y": 1.0, "z": 0.0}

    server = GpuUsageServer(use, known)
    port = await server.open(0)
    mirror: Informer[GpuNode] = Informer(Metrics(), api_resource.GPU_NODES)  # type: ignore[arg-type]
    status = {"endpoint": f"http://127.0.0.1:{port}"}
    mirror.put(msgspec.convert({"metadata": {"name": "n"}, "status": status}, GpuNode))
    try:
        found = await usage.look(Metrics(), {KEY: pod("a", "x,y"), OTHER: pod("b")}, mirror)  # type: ignore[arg-type]
        assert found == {KEY: TaskUsage(None, None, 0.75)}
    finally:
        await server.close()
