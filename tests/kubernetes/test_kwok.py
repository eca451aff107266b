"""Simulated nodes behave as real ones, as far as a scheduler and an operator can see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cluster.control_plane import ControlPlane
from cluster.process import wait_for

Add = Callable[..., list[str]]


@pytest.fixture
def bind(control_plane: ControlPlane, namespace: str) -> Callable[..., Callable[[], dict[str, Any]]]:
    """Creates a pod, binds it to a node as a scheduler does, and returns a function that reads its status."""

    def make(name: str, node: str, **annotations: str) -> Callable[[], dict[str, Any]]:
        path = f"/api/v1/namespaces/{namespace}/pods"
        wait_for(
            "the service account",
            lambda: control_plane.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")[0] == 200,
        )
        marks = {f"test.fairway.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        spec = {"schedulerName": "fairway", "restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
        status, answer = control_plane.request("POST", path, {"metadata": {"name": name, "annotations": marks}, "spec": spec})
        assert status == 201, answer
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        status, answer = control_plane.request("POST", f"{path}/{name}/binding", target)
        assert status == 201, answer
        return lambda: control_plane.get(f"{path}/{name}")[1]["status"]

    return make


def test_a_bound_pod_runs(kwok_nodes: Add, bind: Callable[..., Any]) -> None:
    node = kwok_nodes(2, capacity={"nvidia.com/gpu": "8"})[1]
    status = bind("stays", node)
    wait_for("it runs", lambda: status()["phase"] == "Running")
    assert status()["containerStatuses"][0]["ready"]
    assert status()["podIP"]


def test_it_ends_as_its_annotations_say(kwok_nodes: Add, bind: Callable[..., Any]) -> None:
    node = kwok_nodes(1)[0]
    good = bind("good", node, runs_for="10ms")
    bad = bind("bad", node, runs_for="10ms", exit_code="137")
    refused = bind("refused", node, refused="OutOfcpu")
    wait_for("its good end", lambda: good()["phase"] == "Succeeded")
    wait_for("its bad end", lambda: bad()["phase"] == "Failed")
    wait_for("its refusal", lambda: refused()["phase"] == "Failed")
    assert bad()["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert refused()["reason"] == "OutOfcpu"


def test_a_deleted_pod_goes(kwok_nodes: Add, bind: Callable[..., Any], control_plane: ControlPlane, namespace: str) -> None:
    status = bind("goes", kwok_nodes(1)[0])
    wait_for("it runs", lambda: status()["phase"] == "Running")
    path = f"/api/v1/namespaces/{namespace}/pods/goes"
    control_plane.request("DELETE", path)
    wait_for("its end", lambda: control_plane.get(path)[0] == 404)
