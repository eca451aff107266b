"""Which component allocates the GPUs of a pod, and how the pod learns of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import GpuNode, KubernetesNode
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.operator.manifest.gpu import MEMORY, PRODUCT, VISIBLE, GpuAllocator, Nodes, give, giver
from fairway.errors import RefusedError
from fairway.spec.resource import PlacementConstraints
from fairway.state.task import TaskNeed

PLUGIN, FAIRWAY = InstallationSettings(image="f"), InstallationSettings(image="f", gpus="fairway")
THEIRS = InstallationSettings(image="f", scheduler="")
ANY = PlacementConstraints()
ONE, HALF = TaskNeed(gpus=1), TaskNeed(gpus=1, gpu_milli=500)


def managed(name: str = "m", kind: str = "A100", **labels: str) -> tuple[KubernetesNode, GpuNode | None]:
    node = msgspec.convert({"metadata": {"name": name, "labels": labels}}, KubernetesNode)
    status = {"gpus": [{"uuid": f"{name}-0", "type": kind}]}
    return node, msgspec.convert({"metadata": {"name": name}, "spec": {"managed": True}, "status": status}, GpuNode)


def plugged(name: str = "p", **labels: str) -> tuple[KubernetesNode, GpuNode | None]:
    status = {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8"}}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, KubernetesNode), None


def those(*nodes: tuple[KubernetesNode, GpuNode | None]) -> Callable[[], Nodes]:
    return lambda: nodes


@pytest.mark.parametrize("installation", [PLUGIN, FAIRWAY])
def test_whole_gpus_come_from_where_there_are_any(installation: InstallationSettings) -> None:
    assert giver(ONE, ANY, those(managed()), installation) is GpuAllocator.FAIRWAY
    assert giver(ONE, ANY, those(plugged()), installation) is GpuAllocator.PLUGIN
    assert giver(ONE, ANY, those(managed(), plugged()), installation) == installation.gpus
    assert giver(ONE, ANY, those(), installation) == installation.gpus


def test_labels_names_and_types_decide_where_both_are_there() -> None:
    both = those(managed(pool="a"), plugged(pool="b", **{PRODUCT: "Tesla-T4", MEMORY: "15360"}))
    assert giver(ONE, PlacementConstraints(labels={"pool": "b"}), both, FAIRWAY) is GpuAllocator.PLUGIN
    assert giver(ONE, PlacementConstraints(nodes=("m",)), both, PLUGIN) is GpuAllocator.FAIRWAY
    assert giver(TaskNeed(gpus=1, gpu_type=("T4",)), ANY, both, FAIRWAY) is GpuAllocator.PLUGIN
    assert giver(TaskNeed(gpus=1, gpu_type=("a100",)), ANY, both, PLUGIN) is GpuAllocator.FAIRWAY
    assert giver(TaskNeed(gpus=1, gpu_memory=40 << 30), ANY, both, PLUGIN) is GpuAllocator.FAIRWAY


@pytest.mark.parametrize(
    ("need", "placement", "words"),
    [
        (HALF, ANY, "50% of a GPU"),
        (TaskNeed(gpus=1, gpu_milli=1, gpu_memory=4 << 30), ANY, "a part of a GPU's memory"),
        (ONE, PlacementConstraints(devices=("3",)), "the GPU 3"),
    ],
)
def test_what_a_plugin_cannot_give_is_refused_and_never_rounded_up(
    need: TaskNeed, placement: PlacementConstraints, words: str
) -> None:
    with pytest.raises(RefusedError, match=f"requests {words}, and GPUs of p are handed out by a device plug-in"):
        giver(need, placement, those(plugged()), PLUGIN)
    with pytest.raises(RefusedError, match="the cluster's own scheduler"):
        giver(need, placement, those(managed()), THEIRS)
    assert giver(need, placement, those(managed(), plugged()), PLUGIN) is GpuAllocator.FAIRWAY
    # Nodes that Fairway manages may join later.
    assert giver(need, placement, those(plugged()), FAIRWAY) is GpuAllocator.FAIRWAY
    assert giver(need, placement, those(), PLUGIN) is GpuAllocator.FAIRWAY


def body(**spec: Any) -> dict[str, Any]:
    container = {"name": "task", "env": [{"name": VISIBLE, "value": "all"}], "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"initContainers": [{"name": "i"}], "containers": [container], **spec},
    }


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}


def test_our_scheduler_is_told_what_is_asked_for_and_tells_the_pod_which_it_got() -> None:
    need = TaskNeed(gpus=2, gpu_type=("A100",), gpu_memory=40 << 30)
    given = give(
        body(),
        need,
        PlacementConstraints(devices=("0", "1")),
        GpuAllocator.FAIRWAY,
        those(),
        InstallationSettings("f", gpu_runtime_class="nvidia"),
    )
    noted = given["metadata"]["annotations"]
    assert (noted["a"], noted[annotation.GPUS], noted[annotation.GPU_MEMORY]) == ("b", "2", str(40 << 30))
    assert (json.loads(noted[annotation.GPU_TYPES]), json.loads(noted[annotation.DEVICES])) == (["A100"], ["0", "1"])
    (container,) = given["spec"]["containers"]
    assert variables(container) == {VISIBLE: f"metadata.annotations['{annotation.GPU_IDS}']"}
    assert container["resources"] == {"requests": {"cpu": "1"}}
    assert variables(given["spec"]["initContainers"][0]) == {VISIBLE: "void"}
    assert given["spec"]["runtimeClassName"] == "nvidia"


def test_a_share_is_told_to_frameworks_as_on_one_machine() -> None:
    given = give(body(), HALF, ANY, GpuAllocator.FAIRWAY, those(), FAIRWAY)
    assert given["metadata"]["annotations"][annotation.GPU_MILLI] == "500"
    told = variables(given["spec"]["containers"][0])
    assert told["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert told["XLA_PYTHON_CLIENT_MEM_FRACTION"] == f"metadata.annotations['{annotation.GPU_PART}']"
    assert told["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_who_wants_no_neighbours_takes_the_whole_gpu_and_stays_within_its_part() -> None:
    given = give(body(), HALF, PlacementConstraints(alone=True), GpuAllocator.FAIRWAY, those(), FAIRWAY)
    assert annotation.GPU_MILLI not in given["metadata"]["annotations"]
    assert variables(given["spec"]["containers"][0])["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.500"


def test_a_plugin_is_asked_for_a_number_and_says_itself_which() -> None:
    given = give(body(), TaskNeed(gpus=2), ANY, GpuAllocator.PLUGIN, those(), PLUGIN)
    (container,) = given["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "1", "nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}
    assert variables(container) == {}
    assert given["metadata"]["annotations"] == {"a": "b"}
    assert "affinity" not in given["spec"]


def test_types_are_labels_where_a_plugin_gives() -> None:
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    own = {"nodeAffinity": {kind: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}}}
    nodes = those(plugged("a", **{PRODUCT: "Tesla-T4"}), plugged("b", **{PRODUCT: "NVIDIA-A100-SXM4-80GB"}))
    given = give(
        body(affinity=own), TaskNeed(gpus=1, gpu_type=("A100",), gpu_memory=8 << 30), ANY, GpuAllocator.PLUGIN, nodes, PLUGIN
    )
    (term,) = given["spec"]["affinity"]["nodeAffinity"][kind]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "x", "operator": "Exists"},
        {"key": PRODUCT, "operator": "In", "values": ["NVIDIA-A100-SXM4-80GB"]},
        {"key": MEMORY, "operator": "Gt", "values": ["8191"]},
    ]


def test_who_asks_for_none_sees_none_whatever_the_document_or_the_image_says() -> None:
    given = give(body(), TaskNeed(), ANY, GpuAllocator.PLUGIN, those(), FAIRWAY)
    assert variables(given["spec"]["containers"][0]) == {VISIBLE: "void"}
    assert annotation.GPUS not in given["metadata"]["annotations"]
