"""Simulated nodes, any number of them: kwok plays their kubelets by the rules of `stages.yaml`."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cluster import programs
from cluster.control_plane import LOOPBACK, ControlPlane
from cluster.process import PATIENCE, wait_for

_STAGES = Path(__file__).with_name("stages.yaml")
_MARK = "kwok.x-k8s.io/node"
_AT_ONCE = 8


def start(plane: ControlPlane) -> None:
    """Start kwok for every node that is marked for it; a second call does nothing."""
    if plane.processes.alive("kwok"):
        return
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    plane.processes.start(
        "kwok",
        [
            programs.find("kwok"),
            "--kubeconfig", plane.kubeconfig("kwok", ["system:masters"]),
            "--config", _STAGES,
            "--manage-nodes-with-annotation-selector", f"{_MARK}=fake",
            "--node-lease-duration-seconds", "40",
            "--node-ip", "10.200.255.254",  # only until kwok manages the node
            "--cidr", "10.201.0.0/16",
            "--server-address", f"{LOOPBACK}:{port}",
        ],
        {"HOME": str(plane.folder)},
    )  # fmt: skip


def add_nodes(
    plane: ControlPlane,
    count: int,
    *,
    prefix: str = "fake",
    labels: dict[str, str] | None = None,
    taints: Iterable[dict[str, str]] = (),
    capacity: dict[str, str] | None = None,
    awaited: bool = False,
) -> list[str]:
    """Add this many simulated nodes, all alike; returns their names when all are ready.

    If pods wait for them already (`awaited`), pods are kept off until kwok manages the nodes: earlier, it may overlook a pod.
    """
    start(plane)
    names = [f"{prefix}-{number}" for number in range(count)]
    taints = list(taints)
    real = capacity or {}
    # Taints would not keep them off: pods of tests tolerate all taints.
    capacity = {**real, "cpu": "0"} if awaited else real
    documents = [_node(name, number, labels or {}, taints, capacity) for number, name in enumerate(names)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(_create, [plane] * _AT_ONCE, [documents[start::_AT_ONCE] for start in range(_AT_ONCE)]))
    wait_for(f"{count} nodes that are ready", lambda: set(names) <= _ready(plane), PATIENCE + count / 5)
    wait_for(f"kwok to hold {count} nodes", lambda: set(names) <= _held(plane))
    for name in names if awaited else ():
        has = {"capacity": _size(real), "allocatable": _size(real)}
        status, answer = plane.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": has}, "application/merge-patch+json")
        assert status == 200, answer
    return names


def _create(plane: ControlPlane, documents: list[dict[str, Any]]) -> None:
    for document in documents:
        status, answer = plane.request("POST", "/api/v1/nodes", document)
        assert status == 201, answer
    plane.hang_up()


def remove_nodes(plane: ControlPlane, names: Iterable[str]) -> None:
    """Delete nodes; the controllers collect the pods on them."""
    for name in names:
        plane.request("DELETE", f"/api/v1/nodes/{name}")


def _ready(plane: ControlPlane) -> set[str]:
    nodes = plane.get("/api/v1/nodes?resourceVersion=0")[1]["items"]
    return {
        node["metadata"]["name"]
        for node in nodes
        if any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", ()))
    }


def _held(plane: ControlPlane) -> set[str]:
    leases = plane.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?resourceVersion=0")[1]["items"]
    return {lease["metadata"]["name"] for lease in leases if lease["spec"].get("holderIdentity")}


def _node(
    name: str, number: int, labels: dict[str, str], taints: list[dict[str, str]], capacity: dict[str, str]
) -> dict[str, Any]:
    size = _size(capacity)
    address = f"10.200.{number // 250}.{number % 250 + 1}"
    return {
        "metadata": {
            "name": name,
            "annotations": {_MARK: "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"} | labels,
        },
        "spec": {"taints": taints},
        "status": {
            "capacity": size,
            "allocatable": size,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        },
    }


def _size(capacity: dict[str, str]) -> dict[str, str]:
    return {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi"} | capacity
