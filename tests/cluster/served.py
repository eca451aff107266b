"""ModelService objects and the objects they consist of, for tests; and models whose predictions identify the version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from cluster.installed import Installed
from cluster.process import wait_for
from fairway.registry.model import ModelRegistry
from fairway.registry.registry_namespace import RegistryNamespaces
from fairway.registry.remote_blob import open_blobs
from fairway.state.model import ModelFacts

PATIENCE = 90.0


def write_model(path: Path, add: float) -> Path:
    """Write a model that adds a number."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["y"])],
        "adds",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor("c", TensorProto.FLOAT, [1], [add])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return path


def register(home: Path, *added: float, namespace: str = "default") -> None:
    """Register versions of the model `adds` of a namespace in the operator's record."""
    models = ModelRegistry(home, open_blobs(home / "blobs", ""), RegistryNamespaces(home, several=True))
    for number in added:
        models.register(models.own("adds", namespace), str(write_model(home / f"adds-{number}.onnx", number)), ModelFacts(), 1.0)


class Services:
    """ModelService objects in one namespace."""

    def __init__(self, installed: Installed, namespace: str) -> None:
        self.installed = installed
        self.plane = installed.plane
        self.namespace = namespace
        self.path = f"/apis/fairway.dev/v1alpha1/namespaces/{namespace}/modelservices"

    def apply(self, name: str, **spec: Any) -> None:
        """Create or change an object."""
        body = {
            "apiVersion": "fairway.dev/v1alpha1",
            "kind": "ModelService",
            "metadata": {"name": name, "namespace": self.namespace},
            # A simulated node has the taint of a node that is not ready for a while.
            "spec": {"resources": {"cpu": "100m"}, "grace": "1s", "placement": {"tolerations": ["*"]}, **spec},
        }
        self.plane.apply(body, f"{self.path}/{name}")

    def delete(self, name: str) -> None:
        """Delete the object."""
        self.plane.request("DELETE", f"{self.path}/{name}")

    def status(self, name: str) -> dict[str, Any]:
        """Return its status."""
        found: dict[str, Any] = self.plane.get(f"{self.path}/{name}")[1].get("status", {})
        return found

    def of(self, kind: str, service: str, api: str = "/api/v1") -> list[dict[str, Any]]:
        """Return the objects of a kind that a service consists of, by name."""
        path = f"{api}/namespaces/{self.namespace}/{kind}?labelSelector=fairway.dev/service={service}"
        return sorted(self.plane.get(path)[1]["items"], key=lambda one: str(one["metadata"]["name"]))

    def counts(self, service: str) -> dict[str, int]:
        """Return the Deployments of a service, with the desired number of pods of each."""
        found = self.of("deployments", service, "/apis/apps/v1")
        return {one["metadata"]["name"]: one["spec"]["replicas"] for one in found}

    def pods(self, service: str) -> list[dict[str, Any]]:
        """Return the pods of its replicas."""
        return [pod for pod in self.of("pods", service) if pod["metadata"]["labels"]["fairway.dev/part"] == "replica"]

    def settled(self, service: str, count: int) -> bool:
        """Whether the first revision has so many pods, all of them replicas, and no change is in progress."""
        (first, *_) = self.of("deployments", service, "/apis/apps/v1")
        pods, status = [pod["metadata"] for pod in self.pods(service)], first["status"]
        seen = status.get("observedGeneration") == first["metadata"]["generation"]
        there = (first["spec"]["replicas"], status.get("readyReplicas"), len(pods)) == (count, count, count)
        return seen and there and all("deletionTimestamp" not in one and "fairway.dev/replica" in one["labels"] for one in pods)

    def until(self, name: str, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the object's status fulfils the condition."""
        wait_for(f"{name} {what}", lambda: holds(self.status(name)), PATIENCE, lambda: self.why_not(name))
        return self.status(name)

    def why_not(self, name: str) -> str:
        """Return the current state, for error messages."""
        pods = {pod["metadata"]["name"]: (pod["metadata"]["labels"], pod["status"]) for pod in self.of("pods", name)}
        return f"It says {self.status(name)}; {self.counts(name)}; its pods: {pods}; {self.installed.last_words()}"
