"""GPUs found by agents, as the core allocates them, without an API server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import annotation, gpu_allocation
from fairway.engines.kubernetes.objects import GpuNode, KubernetesNode, Pod
from fairway.engines.kubernetes.scheduler.core_sync import CoreSync
from fairway.engines.kubernetes.scheduler.gang import PodPlacement
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey

GIB = 1 << 30


def node(name: str, **resources: str) -> KubernetesNode:
    given = {
        "cpu": "64",
        "memory": "256Gi",
        "pods": "110",
        **{key.replace("__", ".com/"): value for key, value in resources.items()},
    }
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": given, "capacity": given}}, KubernetesNode)


def gpu_node(name: str, count: int, sick: tuple[int, ...] = (), kind: str = "A100", **spec: Any) -> GpuNode:
    told = [
        {"uuid": f"{name}-{at}", "index": at, "type": kind, "memory": 80 * GIB, "healthy": at not in sick} for at in range(count)
    ]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"managed": True, **spec}, "status": {"gpus": told}}, GpuNode)


def pod(name: str, **asked: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": "1", **asked.pop("requests", {})}}}
    annotations = {f"fairway.dev/{key.replace('_', '-')}": value for key, value in asked.items()}
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "annotations": annotations,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return msgspec.convert(
        {
            "metadata": metadata,
            "spec": {"containers": [container], "schedulerName": annotation.SCHEDULER},
            "status": {"phase": "Pending"},
        },
        Pod,
    )


class Cluster:
    """A follower, and a cluster in which its bindings take effect."""

    def __init__(self, *things: KubernetesNode | GpuNode, follower: CoreSync | None = None) -> None:
        self.follower = follower or CoreSync(Scheduler())
        self.pods: dict[str, Pod] = {}
        self.now = 1000.0
        for one in things:
            self.see(one)

    def see(self, *things: KubernetesNode | GpuNode | Pod) -> None:
        for one in things:
            name = one.metadata.name
            if isinstance(one, KubernetesNode):
                self.follower.node(name, None, one)
            elif isinstance(one, GpuNode):
                self.follower.gpu_node(name, None, one)
            else:
                self.follower.pod(f"team/{name}", self.pods.get(name), one)
                self.pods[name] = one

    def decide(self) -> dict[str, PodPlacement]:
        self.now += 1
        outcome = self.follower.decide(self.now)
        found = {one.metadata.name: place for bind in outcome.binds for one, place in bind.pods}
        for name, place in found.items():
            plain = msgspec.to_builtins(self.pods[name])
            plain["spec"]["nodeName"] = place.node
            plain["metadata"].setdefault("annotations", {}).update(gpu_allocation.chosen(place.devices, place.milli, place.part))
            self.see(msgspec.convert(plain, Pod))
        return found

    def why(self, name: str) -> str:
        return self.follower.holds(self.now)[JobKey("team", f"pod/{name}")].message


def test_a_binding_names_the_devices_and_nobody_else_gets_them() -> None:
    cluster = Cluster(node("a"), gpu_node("a", 4))
    cluster.see(pod("two", gpus="2"), pod("one", gpus="1"))
    placed = cluster.decide()
    held = [uuid for place in placed.values() for uuid in place.devices]
    assert len(held) == len(set(held)) == 3
    cluster.see(pod("more", gpus="2"))
    assert cluster.decide() == {}
    assert cluster.why("more") == "needs 2 GPUs; 1 of 4 is free"


def test_shares_lie_together_and_say_how_much_they_take() -> None:
    cluster = Cluster(node("a"), gpu_node("a", 2))
    cluster.see(pod("half", gpus="1", gpu_milli="500"), pod("memory", gpus="1", gpu_milli="1", gpu_memory=str(20 * GIB)))
    placed = cluster.decide()
    assert placed["half"].devices == placed["memory"].devices
    assert (placed["half"].milli, placed["half"].part) == (500, 0.5)
    assert (placed["memory"].milli, placed["memory"].part) == (250, 0.25)


def test_a_scheduler_that_begins_again_reads_what_is_taken_from_the_pods() -> None:
    before = Cluster(node("a"), gpu_node("a", 2))
    before.see(pod("half", gpus="1", gpu_milli="600"), pod("whole", gpus="1"))
    found = before.decide()
    assert set(found) == {"half", "whole"}
    again = Cluster(node("a"), gpu_node("a", 2))
    again.see(*before.pods.values(), pod("small", gpus="1", gpu_milli="400"))
    assert again.decide()["small"].devices == found["half"].devices
    again.see(pod("more", gpus="1", gpu_milli="100"))
    assert again.decide() == {}


def test_what_is_taken_is_known_though_the_agent_has_not_spoken_yet() -> None:
    before = Cluster(node("a"), gpu_node("a", 1))
    before.see(pod("half", gpus="1", gpu_milli="500"), pod("other", gpus="1", gpu_milli="500"))
    before.decide()
    again = Cluster(node("a"))
    again.see(*before.pods.values(), pod("more", gpus="1", gpu_milli="100"))
    assert again.decide() == {}
    again.see(gpu_node("a", 1))
    assert again.decide() == {}


def test_sick_and_excluded_devices_are_left_out() -> None:
    cluster = Cluster(node("a"), gpu_node("a", 4, sick=(0, 1), exclude=["a-2"]))
    cluster.see(pod("x", gpus="1"), pod("y", gpus="1"))
    (place,) = cluster.decide().values()
    assert place.devices == ("a-3",)
    cluster.see(gpu_node("a", 4, exclude=["a-2"]))
    (place,) = cluster.decide().values()
    assert place.devices[0] in ("a-0", "a-1")


def test_named_devices_and_types() -> None:
    cluster = Cluster(node("a"), gpu_node("a", 4), node("b"), gpu_node("b", 2, kind="T4"))
    cluster.see(pod("third", gpus="1", devices=json.dumps(["a-2"])), pod("small", gpus="1", gpu_types=json.dumps(["T4"])))
    placed = cluster.decide()
    assert placed["third"].devices == ("a-2",)
    assert placed["small"].node == "b"


def test_where_an_administrator_wants_no_shares_there_are_none() -> None:
    cluster = Cluster(node("a"), gpu_node("a", 2, mode="whole"))
    cluster.see(pod("half", gpus="1", gpu_milli="500"), pod("whole", gpus="1"), pod("none"))
    assert set(cluster.decide()) == {"whole", "none"}
    cluster.see(gpu_node("a", 2))
    assert set(cluster.decide()) == {"half"}


def test_a_plugins_gpus_are_a_number_and_never_ours() -> None:
    cluster = Cluster(node("a", nvidia__gpu="2"), gpu_node("a", 2))
    cluster.see(pod("ours", gpus="1"), pod("theirs", requests={"nvidia.com/gpu": "2"}))
    placed = cluster.decide()
    assert {name: place.devices for name, place in placed.items()} == {"theirs": ()}
    assert (
        cluster.why("ours")
        == "needs 1 GPU; 0 of 0 are free; GPUs of 1 node are handed out by a device plug-in, not by this scheduler"
    )
    cluster.see(pod("more", requests={"nvidia.com/gpu": "1"}))
    assert cluster.decide() == {}


@pytest.mark.parametrize("managed", [True, False])
def test_a_pod_for_a_plugin_does_not_lie_on_a_node_of_ours(managed: bool) -> None:
    cluster = Cluster(node("a"), gpu_node("a", 2, managed=managed))
    cluster.see(pod("theirs", requests={"nvidia.com/gpu": "1"}), pod("ours", gpus="1"))
    assert set(cluster.decide()) == ({"ours"} if managed else set())
