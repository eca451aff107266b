"""Which component allocates the GPUs of a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import annotation, gpu_allocation
from fairway.engines.kubernetes.objects import GpuNode, KubernetesNode


def node(**resources: str) -> KubernetesNode:
    given = {name.replace("__", "/").replace("_", "."): value for name, value in resources.items()}
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"capacity": given, "allocatable": given}}, KubernetesNode)


def found(**spec: Any) -> GpuNode:
    told = [{"uuid": "b", "index": 1, "type": "T4", "memory": 16}, {"uuid": "a", "index": 0, "type": "T4", "healthy": False}]
    return msgspec.convert({"metadata": {"name": "n"}, "spec": spec, "status": {"gpus": told}}, GpuNode)


def test_gpus_of_a_managed_node_are_ours_in_the_order_of_their_numbers() -> None:
    own = gpu_allocation.ours(node(cpu="4"), found(managed=True))
    assert [(one.uuid, one.healthy, one.numa) for one in own] == [("a", False, -1), ("b", True, -1)]


def test_gpus_of_other_nodes_are_not() -> None:
    assert gpu_allocation.ours(node(cpu="4"), None) == ()
    assert gpu_allocation.ours(node(cpu="4"), found()) == ()


@pytest.mark.parametrize("name", ["nvidia_com__gpu", "nvidia_com__gpu_shared", "nvidia_com__mig-1g_5gb"])
def test_where_a_plugin_gives_them_away_we_never_do(name: str) -> None:
    assert gpu_allocation.ours(node(**{name: "8"}), found(managed=True)) == ()
    assert gpu_allocation.ours(node(**{name: "0"}), found(managed=True))


def test_a_plugin_that_restarts_is_still_one() -> None:
    status = {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "0"}}
    assert gpu_allocation.by_plugin(msgspec.convert({"status": status}, KubernetesNode))


def test_excluded_gpus_are_as_good_as_sick_for_whoever_places() -> None:
    excluded = found(managed=True, exclude=["b"])
    assert [one.healthy for one in gpu_allocation.devices_of(excluded)] == [False, False]
    assert [one.healthy for one in gpu_allocation.devices_of(excluded, excluding=False)] == [False, True]


def test_what_a_binding_says_can_be_read_back() -> None:
    assert gpu_allocation.chosen((), 1000, 1.0) == {}
    assert gpu_allocation.chosen(("a", "b"), 1000, 1.0) == {annotation.GPU_IDS: "a,b"}
    shared = gpu_allocation.chosen(("a",), 250, 0.25)
    assert shared == {annotation.GPU_IDS: "a", annotation.GPU_SHARE: "250", annotation.GPU_PART: "0.250"}
    assert gpu_allocation.share_of(shared) == 250
    assert gpu_allocation.share_of({}) == gpu_allocation.share_of({annotation.GPU_SHARE: "half"}) == 1000


def test_memory_counts_where_it_was_asked_for_and_the_share_elsewhere() -> None:
    assert gpu_allocation.memory_part(0, 250, [80]) == 0.25
    assert gpu_allocation.memory_part(20, 500, [80, 40]) == 0.25
    assert gpu_allocation.memory_part(20, 500, []) == 0.5
