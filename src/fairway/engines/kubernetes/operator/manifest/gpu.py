"""The GPUs of a pod: from our scheduler, by an annotation, or from a device plug-in, by count. Pure.

The resource requests of a pod cannot be changed after its creation. So what allocates its GPUs is decided at creation, by the
nodes that exist then. A device plug-in counts whole GPUs and nothing else; a request that it cannot satisfy is never rounded up
to one that it can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

from fairway.devices.mps_service import GpuShare, framework_limits
from fairway.devices.nvidia_probe import short_type
from fairway.engines.kubernetes import annotation, gpu_allocation
from fairway.engines.kubernetes.objects import GpuNode, KubernetesNode
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.errors import RefusedError
from fairway.spec.resource import WHOLE_GPU, PlacementConstraints
from fairway.state.node import NodeDevice
from fairway.state.task import TaskNeed

Manifest = dict[str, Any]
Nodes = Iterable[tuple[KubernetesNode, GpuNode | None]]
"""Every node, with the `GpuNode` of its agent."""

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
NOTHING = "void"
"""A value of NVIDIA's runtime: no device at all. Images often set `all`."""
PRODUCT = "nvidia.com/gpu.product"
MEMORY = "nvidia.com/gpu.memory"
"""Labels by which NVIDIA's feature discovery describes the GPUs of a node; memory in MiB."""


class GpuAllocator(StrEnum):
    """What allocates a pod's GPUs."""

    FAIRWAY = "fairway"
    PLUGIN = "plugin"


def giver(
    need: TaskNeed, placement: PlacementConstraints, nodes: Callable[[], Nodes], installation: InstallationSettings
) -> GpuAllocator:
    """Return what allocates this task's GPUs.

    Raises `RefusedError` where there is only a device plug-in and it cannot satisfy the request.
    """
    particular = _particular(need, placement)
    if not need.gpus:
        return GpuAllocator.PLUGIN
    if installation.scheduler != annotation.SCHEDULER:
        if particular:
            raise _refusal(particular, "the cluster's own scheduler places pods here, and it")
        return GpuAllocator.PLUGIN
    eligible = [(node, its_gpus) for node, its_gpus in nodes() if _may_lie_on(node, placement)]
    managed = any(_has(gpu_allocation.ours(node, its_gpus), need) for node, its_gpus in eligible)
    plugged = [node for node, _ in eligible if gpu_allocation.by_plugin(node)]
    if particular:
        if plugged and not managed and installation.gpus == "plugin":
            raise _refusal(particular, f"GPUs of {_few(plugged)} are handed out by a device plug-in, which")
        return GpuAllocator.FAIRWAY
    matches_plugin = any(_labelled(node, need) for node in plugged)
    if managed == matches_plugin:
        return GpuAllocator(installation.gpus)
    return GpuAllocator.FAIRWAY if managed else GpuAllocator.PLUGIN


def _particular(need: TaskNeed, placement: PlacementConstraints) -> str:
    """Return a description of a request that only our scheduler can satisfy; empty for other requests."""
    if need.gpus and need.gpu_milli != WHOLE_GPU:
        return f"{need.gpu_milli / WHOLE_GPU:.0%} of a GPU" if need.gpu_milli > 1 else "a part of a GPU's memory"
    return f"the GPU {' or '.join(placement.devices)}" if need.gpus and placement.devices else ""


def _refusal(particular: str, why: str) -> RefusedError:
    return RefusedError(
        f"it requests {particular}, and {why} only allocates whole GPUs, by their number",
        fix="request whole GPUs, or have an administrator let Fairway allocate those of a node (GpuNode `spec.managed: true`)",
    )


def _few(nodes: Sequence[KubernetesNode]) -> str:
    names = sorted(node.metadata.name for node in nodes)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more nodes" if len(names) > 3 else "")


def _may_lie_on(node: KubernetesNode, placement: PlacementConstraints) -> bool:
    named = not placement.nodes or node.metadata.name in placement.nodes
    return named and placement.labels.items() <= node.metadata.labels.items()


def _has(devices: Sequence[NodeDevice], need: TaskNeed) -> bool:
    types = {name.casefold() for name in need.gpu_type}
    return any(not types or device.type.casefold() in types for device in devices)


def _labelled(node: KubernetesNode, need: TaskNeed) -> bool:
    """Whether a node with a device plug-in has GPUs of the type and size, as far as its labels show."""
    labels = node.metadata.labels
    memory = labels.get(MEMORY, "")
    return (not need.gpu_type or _is_of_type(labels.get(PRODUCT, ""), need)) and (
        not need.gpu_memory or (memory.isdigit() and int(memory) << 20 >= need.gpu_memory)
    )


def _is_of_type(product: str, need: TaskNeed) -> bool:
    # The label has dashes where the product name has spaces.
    return short_type(product.replace("-", " ")).casefold() in {name.casefold() for name in need.gpu_type} if product else False


def give(
    body: Manifest,
    need: TaskNeed,
    placement: PlacementConstraints,
    who: GpuAllocator,
    nodes: Callable[[], Nodes],
    installation: InstallationSettings,
) -> Manifest:
    """Return the pod (or a pod template) with its GPUs, which the first container gets, that of the task.

    Must be applied last, so that no document can set the visible devices itself.
    """
    spec = dict(body["spec"])
    if "initContainers" in spec:
        spec["initContainers"] = [_seeing(container, {"value": NOTHING}) for container in spec["initContainers"]]
    if not need.gpus:
        spec["containers"] = [_seeing(container, {"value": NOTHING}) for container in spec["containers"]]
        return {**body, "spec": spec}
    if installation.gpu_runtime_class:
        spec["runtimeClassName"] = installation.gpu_runtime_class
    if who is GpuAllocator.PLUGIN:
        first, *others = [_seeing(container, None) for container in spec["containers"]]
        spec["containers"] = [_counted(first, installation.gpu_resource, need.gpus), *others]
        if need.gpu_type or need.gpu_memory:
            spec["affinity"] = _labelled_nodes(spec.get("affinity") or {}, need, nodes())
        return {**body, "spec": spec}
    first, *others = [_seeing(container, _annotation(annotation.GPU_IDS)) for container in spec["containers"]]
    spec["containers"] = [_within_share(first, need, placement), *others]
    annotations = {**body["metadata"].get("annotations", {}), **_asked(need, placement)}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}, "spec": spec}


def _annotation(name: str) -> Manifest:
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}}


def _seeing(container: Manifest, devices: Manifest | None) -> Manifest:
    """Return the container with these visible devices; None: those that the plug-in sets."""
    env = [variable for variable in container.get("env", ()) if variable.get("name") != VISIBLE]
    return {**container, "env": env if devices is None else [*env, {"name": VISIBLE, **devices}]}


def _within_share(container: Manifest, need: TaskNeed, placement: PlacementConstraints) -> Manifest:
    """Set the limits of a task that shares a GPU, as on a single machine; only its framework enforces them."""
    if need.gpu_milli == WHOLE_GPU:
        return container
    limits = framework_limits(GpuShare(need.gpu_milli, need.gpu_memory, ()))
    variables: list[Manifest] = [{"name": name, "value": value} for name, value in limits.items()]
    if not placement.alone:
        # The fraction of memory depends on the device, which is not known yet.
        variables = [
            {"name": variable["name"], **_annotation(annotation.GPU_PART)}
            if variable["name"].endswith("MEM_FRACTION")
            else variable
            for variable in variables
        ]
    return {**container, "env": [*container["env"], *variables]}


def _counted(container: Manifest, resource: str, count: int) -> Manifest:
    resources = container.get("resources", {})
    more = {kind: {**resources.get(kind, {}), resource: str(count)} for kind in ("requests", "limits")}
    return {**container, "resources": {**resources, **more}}


def _labelled_nodes(affinity: Manifest, need: TaskNeed, nodes: Nodes) -> Manifest:
    """Return the pod's affinity, with the labels of nodes that have GPUs of the requested type and size added."""
    requirements: list[Manifest] = []
    if need.gpu_type:
        products = {node.metadata.labels.get(PRODUCT, "") for node, _ in nodes}
        values = sorted(product for product in products if _is_of_type(product, need))
        requirements.append({"key": PRODUCT, "operator": "In", "values": values or list(need.gpu_type)})
    if need.gpu_memory:
        requirements.append({"key": MEMORY, "operator": "Gt", "values": [str((need.gpu_memory >> 20) - 1)]})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (of_nodes.get(kind) or {}).get("nodeSelectorTerms") or [{}]
    # Terms are alternatives, so each of them needs the requirements.
    of_nodes[kind] = {
        "nodeSelectorTerms": [{**term, "matchExpressions": [*term.get("matchExpressions", ()), *requirements]} for term in terms]
    }
    return {**affinity, "nodeAffinity": of_nodes}


def _asked(need: TaskNeed, placement: PlacementConstraints) -> dict[str, str]:
    """Return the annotations that describe the GPU request to our scheduler."""
    annotations = {annotation.GPUS: str(need.gpus)}
    annotations |= {annotation.GPU_MILLI: str(need.gpu_milli)} if need.gpu_milli != WHOLE_GPU and not placement.alone else {}
    annotations |= {annotation.GPU_MEMORY: str(need.gpu_memory)} if need.gpu_memory else {}
    annotations |= {annotation.GPU_TYPES: json.dumps(list(need.gpu_type))} if need.gpu_type else {}
    return annotations | ({annotation.DEVICES: json.dumps(list(placement.devices))} if placement.devices else {})
