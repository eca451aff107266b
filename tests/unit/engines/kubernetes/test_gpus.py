"""Which component allocates the GPUs of a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import gpus, marks
from fairway.engines.kubernetes.objects import GpuNode, Node


def node(**resources: str) -> Node:
    given = {name.replace("__", "/").replace("_", "."): value for name, value in resources.items()}
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"capacity": given, "allocatable": given}}, Node)


def found(**spec: Any) -> GpuNode:
    told = [{"uuid": "b", "index": 1, "type": "T4", "memory": 16}, {"uuid": "a", "index": 0, "type": "T4", "healthy": False}]
    return msgspec.convert({"metadata": {"name": "n"}, "spec": spec, "status": {"gpus": told}}, GpuNode)


def test_gpus_of_a_managed_node_are_ours_in_the_order_of_their_numbers() -> None:
    own = gpus.ours(node(cpu="4"), found(managed=True))
    assert [(one.uuid, one.healthy, one.numa) for one in own] == [("a", False, -1), ("b", True, -1)]


def test_gpus_of_other_nodes_are_not() -> None:
    assert gpus.ours(node(cpu="4"), None) == ()
    assert gpus.ours(node(cpu="4"), found()) == ()


@pytest.mark.parametrize("name", ["nvidia_com__gpu", "nvidia_com__gpu_shared", "nvidia_com__mig-1g_5gb"])
def test_where_a_plugin_gives_them_away_we_never_do(name: str) -> None:
    assert gpus.ours(node(**{name: "8"}), found(managed=True)) == ()
    assert gpus.ours(node(**{name: "0"}), found(managed=True))


def test_a_plugin_that_restarts_is_still_one() -> None:
    status = {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "0"}}
    assert gpus.by_plugin(msgspec.convert({"status": status}, Node))


def test_excluded_gpus_are_as_good_as_sick_for_whoever_places() -> None:
    excluded = found(managed=True, exclude=["b"])
    assert [one.healthy for one in gpus.devices_of(excluded)] == [False, False]
    assert [one.healthy for one in gpus.devices_of(excluded, excluding=False)] == [False, True]


def test_what_a_binding_says_can_be_read_back() -> None:
    assert gpus.chosen((), 1000, 1.0) == {}
    assert gpus.chosen(("a", "b"), 1000, 1.0) == {marks.GPU_IDS: "a,b"}
    shared = gpus.chosen(("a",), 250, 0.25)
    assert shared == {marks.GPU_IDS: "a", marks.GPU_SHARE: "250", marks.GPU_PART: "0.250"}
    assert gpus.share_of(shared) == 250
    assert gpus.share_of({}) == gpus.share_of({marks.GPU_SHARE: "half"}) == 1000


def test_memory_counts_where_it_was_asked_for_and_the_share_elsewhere() -> None:
    assert gpus.memory_part(0, 250, [80]) == 0.25
    assert gpus.memory_part(20, 500, [80, 40]) == 0.25
    assert gpus.memory_part(20, 500, []) == 0.5
