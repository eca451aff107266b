"""A scheduler that follows a cluster which exists only in these tests."""

from __future__ import annotations

from typing import Any

import msgspec

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import KubernetesNode, Pod
from fairway.engines.kubernetes.scheduler.core_sync import CoreSync, SchedulingOutcome
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey

OURS = {annotation.MANAGED_BY: annotation.MANAGER, annotation.RUN: "mnist-1"}
"""Labels of a pod that Fairway created."""


def node(name: str, cpu: str = "4", memory: str = "8Gi", **more: Any) -> KubernetesNode:
    given = {"cpu": cpu, "memory": memory, "pods": more.pop("pods", "110"), **more.pop("other", {})}
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    status = {"allocatable": given, "conditions": [{"type": "Ready", "status": more.pop("ready", "True")}]}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": more, "status": status}, KubernetesNode)


def pod(name: str, cpu: str = "1", **more: Any) -> Pod:
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": cpu, **more.pop("requests", {})}}}
    container |= {"ports": more.pop("ports")} if "ports" in more else {}
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "labels": more.pop("labels", {}),
        "annotations": more.pop("annotations", {}),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": more.pop("deleted", None),
    }
    status = {"phase": more.pop("phase", "Pending")}
    spec = {"containers": [container], "schedulerName": more.pop("scheduler", annotation.SCHEDULER), **more}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def gang_pod(index: int, size: int, cpu: str = "1", **more: Any) -> Pod:
    mark = annotation.GangAnnotation(
        "mnist-1.a0", {"worker": annotation.RoleAnnotation(size, size, size, **more.pop("wish", {}))}
    )
    labels = {**OURS, annotation.ROLE: "worker", annotation.INDEX: str(index), annotation.ATTEMPT: "0"}
    return pod(f"mnist-1-worker-{index}-r0", cpu, labels=labels, annotations=annotation.write_gang(mark), **more)


class Cluster:
    """A follower and the objects passed to it, with the calls that mirrors make."""

    def __init__(self, *nodes: KubernetesNode) -> None:
        self.follower = CoreSync(Scheduler())
        self.things: dict[str, Any] = {}
        self.now = 1000.0
        for node in nodes:
            self.node(node)

    def node(self, one: KubernetesNode) -> None:
        name = one.metadata.name
        self.follower.node(name, self.things.get(name), one)
        self.things[name] = one

    def pod(self, *pods: Pod) -> None:
        for one in pods:
            key = f"{one.metadata.namespace}/{one.metadata.name}"
            self.follower.pod(key, self.things.get(key), one)
            self.things[key] = one

    def gone(self, one: Pod) -> None:
        key = f"{one.metadata.namespace}/{one.metadata.name}"
        self.follower.pod(key, self.things.pop(key), None)

    def decide(self) -> dict[str, str]:
        """Take a decision; return the node of each pod that it binds."""
        self.now += 1
        return bound(self.follower.decide(self.now))

    def why(self, key: str) -> str:
        return self.follower.holds(self.now)[JobKey("team", key)].message


def bound(outcome: SchedulingOutcome) -> dict[str, str]:
    return {pod.metadata.name: place.node for bind in outcome.binds for pod, place in bind.pods}
