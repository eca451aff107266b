"""Nodes of a cluster, with every notation of quantities."""

from __future__ import annotations

import msgspec

from fairway.engines.kubernetes.objects import GpuNode, KubernetesNode
from fairway.engines.kubernetes.operator.node import is_ready, node_of


def test_amounts_are_read_as_the_api_writes_them() -> None:
    given = {"cpu": "3920m", "memory": "65811516928m", "pods": "110", "nvidia.com/gpu": "8", "hugepages-2Mi": "0"}
    plain = {"metadata": {"name": "a", "labels": {"topology.kubernetes.io/zone": "z"}}, "status": {"allocatable": given}}
    node = node_of(msgspec.convert(plain, KubernetesNode))
    assert (node.cpu, node.memory, node.tasks, node.other, node.rack) == (3.92, 65811517, 110, {"nvidia.com/gpu": 8}, "z")


def test_gpus_that_our_scheduler_hands_out_are_devices() -> None:
    node = msgspec.convert({"metadata": {"name": "a"}}, KubernetesNode)
    status = {"gpus": [{"uuid": "x", "type": "A100"}]}
    found = node_of(node, msgspec.convert({"spec": {"managed": True}, "status": status}, GpuNode))
    assert [(device.uuid, device.type) for device in found.devices] == [("x", "A100")]
    assert node_of(node, msgspec.convert({"status": status}, GpuNode)).devices == ()


def test_a_node_is_ready_unless_it_says_otherwise() -> None:
    for said, ready in (
        ([], True),
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "Unknown"}], False),
    ):
        assert is_ready(msgspec.convert({"status": {"conditions": said}}, KubernetesNode)) is ready
