"""What an agent reports, and when it reports nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from fairway.engines.kubernetes.agent import gpu_node_report
from fairway.engines.kubernetes.objects import GpuNode, KubernetesNode
from fairway.state.node import NodeDevice

GOOD, BAD = NodeDevice("a", 0, "A100", 80 << 30, numa=1, island="x"), NodeDevice("b", 1, "A100", 80 << 30, healthy=False)


def node(taints: tuple[str, ...] = (), conditions: tuple[dict[str, Any], ...] = ()) -> KubernetesNode:
    spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
    metadata = {"name": "n", "uid": "u", "resourceVersion": "7"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}, KubernetesNode)


def test_what_was_written_reads_back_as_what_was_meant() -> None:
    status = gpu_node_report.status_of([GOOD, BAD], "550.1", "Fairway", "http://10.0.0.1:8081")
    body = gpu_node_report.status_body("n", status, 0.0)
    assert msgspec.convert(body, GpuNode).status == status
    told = body["status"]
    assert (told["type"], told["count"], told["healthy"], told["memory"]) == ("A100", 2, 1, "80 GiB")
    assert told["gpus"][1]["reason"] == gpu_node_report.SICK


def test_the_object_goes_with_its_node_and_leaves_its_spec_to_others() -> None:
    body = gpu_node_report.new_node(node(), managed=True)
    assert body["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]
    assert body["spec"] == {"managed": True}
    assert "spec" not in gpu_node_report.status_body("n", gpu_node_report.status_of([GOOD], "", "", ""), 0.0)


def test_a_sick_gpu_is_told_once_and_taken_back() -> None:
    assert gpu_node_report.condition_body(node(), [GOOD], 0.0) is None
    body = gpu_node_report.condition_body(node(), [GOOD, BAD], 0.0)
    assert body is not None
    (told,) = body["status"]["conditions"]
    assert (told["type"], told["status"]) == ("GpuUnhealthy", "True")
    assert "GPU 1 (b)" in told["message"]
    assert gpu_node_report.condition_body(node(conditions=(told,)), [GOOD, BAD], 100.0) is None
    again = gpu_node_report.condition_body(node(conditions=(told,)), [GOOD], 100.0)
    assert again is not None
    assert again["status"]["conditions"][0]["status"] == "False"
    assert again["status"]["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:01:40Z"
    more = gpu_node_report.condition_body(node(conditions=(told,)), [BAD], 100.0)
    assert more is None or more["status"]["conditions"][0]["lastTransitionTime"] == told["lastTransitionTime"]


def test_a_node_without_a_gpu_that_works_keeps_pods_away_and_one_with_some_does_not() -> None:
    taint = {"key": gpu_node_report.TAINT.key, "effect": "NoSchedule"}
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert gpu_node_report.taint_patch(node(), [GOOD, BAD]) == []
    assert gpu_node_report.taint_patch(node(), []) == []
    assert gpu_node_report.taint_patch(node(), [BAD]) == [test, {"op": "add", "path": "/spec/taints", "value": [taint]}]
    assert gpu_node_report.taint_patch(node(("other",)), [BAD]) == [test, {"op": "add", "path": "/spec/taints/-", "value": taint}]
    assert gpu_node_report.taint_patch(node(("other", gpu_node_report.TAINT.key)), [BAD]) == []
    assert gpu_node_report.taint_patch(node(("other", gpu_node_report.TAINT.key)), [GOOD]) == [
        test,
        {"op": "remove", "path": "/spec/taints/1"},
    ]


def test_who_hands_them_out_is_told() -> None:
    plugged = msgspec.convert({"status": {"capacity": {"nvidia.com/gpu": "1"}}}, KubernetesNode)
    assert [gpu_node_report.giver_of(node(), managed) for managed in (True, False)] == ["Fairway", "nobody"]
    assert gpu_node_report.giver_of(plugged, managed=False) == "a device plug-in"
    assert "ignored until the plug-in is removed from this node" in gpu_node_report.giver_of(plugged, managed=True)
