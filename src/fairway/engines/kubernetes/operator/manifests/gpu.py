"""The GPUs of a pod: from our scheduler, by an annotation, or from a device plug-in, by count. Pure.

What a pod asks for cannot be changed once it is made, so that who gives it GPUs is decided then, by the nodes that there are.
A device plug-in knows whole GPUs by their number and nothing else; what it cannot give is never rounded up to what it can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

from fairway.devices.nvidia import short_type
from fairway.devices.sharing import Share, framework_limits
from fairway.engines.kubernetes import gpus, marks
from fairway.engines.kubernetes.objects import GpuNode, Node
from fairway.engines.kubernetes.operator.installation import Installation
from fairway.errors import RefusedError
from fairway.spec.resources import WHOLE_GPU, Placement
from fairway.state.node import Device
from fairway.state.task import Need

Manifest = dict[str, Any]
Nodes = Iterable[tuple[Node, GpuNode | None]]
"""Every node, with what its agent says of its GPUs."""

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
NOTHING = "void"
"""For NVIDIA's runtime: no device at all. Images often say `all`."""
PRODUCT = "nvidia.com/gpu.product"
MEMORY = "nvidia.com/gpu.memory"
"""Labels by which NVIDIA's feature discovery tells what GPUs a node has; memory in MiB."""


class Giver(StrEnum):
    """Who gives a pod its GPUs."""

    FAIRWAY = "fairway"
    PLUGIN = "plugin"


def giver(need: Need, placement: Placement, nodes: Callable[[], Nodes], installation: Installation) -> Giver:
    """Who gives this task its GPUs. `RefusedError` where only a device plug-in is there, and it cannot give what is asked for."""
    particular = _particular(need, placement)
    if not need.gpus:
        return Giver.PLUGIN
    if installation.scheduler != marks.SCHEDULER:
        if particular:
            raise _refusal(particular, "the cluster's own scheduler places pods here, and it")
        return Giver.PLUGIN
    there = [(node, found) for node, found in nodes() if _may_lie_on(node, placement)]
    mine = any(_has(gpus.ours(node, found), need) for node, found in there)
    plugged = [node for node, _ in there if gpus.by_plugin(node)]
    if particular:
        if plugged and not mine and installation.gpus == "plugin":
            raise _refusal(particular, f"GPUs of {_few(plugged)} are handed out by a device plug-in, which")
        return Giver.FAIRWAY
    theirs = any(_labelled(node, need) for node in plugged)
    if mine == theirs:
        return Giver(installation.gpus)
    return Giver.FAIRWAY if mine else Giver.PLUGIN


def _particular(need: Need, placement: Placement) -> str:
    """What only our scheduler can give."""
    if need.gpus and need.gpu_milli != WHOLE_GPU:
        return f"{need.gpu_milli / WHOLE_GPU:.0%} of a GPU" if need.gpu_milli > 1 else "a part of a GPU's memory"
    return f"the GPU {' or '.join(placement.devices)}" if need.gpus and placement.devices else ""


def _refusal(particular: str, why: str) -> RefusedError:
    return RefusedError(
        f"it asks for {particular}, and {why} gives out whole GPUs by their number only",
        fix="ask for whole GPUs, or have an administrator let Fairway hand out those of a node (GpuNode `spec.managed: true`)",
    )


def _few(nodes: Sequence[Node]) -> str:
    names = sorted(node.metadata.name for node in nodes)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more nodes" if len(names) > 3 else "")


def _may_lie_on(node: Node, placement: Placement) -> bool:
    named = not placement.nodes or node.metadata.name in placement.nodes
    return named and placement.labels.items() <= node.metadata.labels.items()


def _has(devices: Sequence[Device], need: Need) -> bool:
    types = {one.casefold() for one in need.gpu_type}
    return any(not types or device.type.casefold() in types for device in devices)


def _labelled(node: Node, need: Need) -> bool:
    """Whether a node with a device plug-in has GPUs of the type and size, as far as its labels tell."""
    labels = node.metadata.labels
    memory = labels.get(MEMORY, "")
    return (not need.gpu_type or _is_of_type(labels.get(PRODUCT, ""), need)) and (
        not need.gpu_memory or (memory.isdigit() and int(memory) << 20 >= need.gpu_memory)
    )


def _is_of_type(product: str, need: Need) -> bool:
    # The label has dashes where the name has spaces.
    return short_type(product.replace("-", " ")).casefold() in {one.casefold() for one in need.gpu_type} if product else False


def give(
    body: Manifest, need: Need, placement: Placement, who: Giver, nodes: Callable[[], Nodes], installation: Installation
) -> Manifest:
    """The pod (or a template of pods) with its GPUs, the task's container first.

    To be done last: no document says by itself which devices it sees.
    """
    spec = dict(body["spec"])
    if "initContainers" in spec:
        spec["initContainers"] = [_seeing(one, {"value": NOTHING}) for one in spec["initContainers"]]
    if not need.gpus:
        spec["containers"] = [_seeing(one, {"value": NOTHING}) for one in spec["containers"]]
        return {**body, "spec": spec}
    if installation.gpu_runtime_class:
        spec["runtimeClassName"] = installation.gpu_runtime_class
    if who is Giver.PLUGIN:
        first, *others = [_seeing(one, None) for one in spec["containers"]]
        spec["containers"] = [_counted(first, installation.gpu_resource, need.gpus), *others]
        if need.gpu_type or need.gpu_memory:
            spec["affinity"] = _labelled_nodes(spec.get("affinity") or {}, need, nodes())
        return {**body, "spec": spec}
    first, *others = [_seeing(one, _annotation(marks.GPU_IDS)) for one in spec["containers"]]
    spec["containers"] = [_within_share(first, need, placement), *others]
    annotations = {**body["metadata"].get("annotations", {}), **_asked(need, placement)}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}, "spec": spec}


def _annotation(name: str) -> Manifest:
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}}


def _seeing(container: Manifest, devices: Manifest | None) -> Manifest:
    """The container with these devices; None: those that the plug-in names."""
    env = [one for one in container.get("env", ()) if one.get("name") != VISIBLE]
    return {**container, "env": env if devices is None else [*env, {"name": VISIBLE, **devices}]}


def _within_share(container: Manifest, need: Need, placement: Placement) -> Manifest:
    """A task that shares a GPU is told to keep within its part, as on one machine; nothing but its framework holds it to that."""
    if need.gpu_milli == WHOLE_GPU:
        return container
    limits = framework_limits(Share(need.gpu_milli, need.gpu_memory, ()))
    said: list[Manifest] = [{"name": name, "value": value} for name, value in limits.items()]
    if not placement.alone:
        # What part of the memory it is depends on the device, which is not known yet.
        said = [
            {"name": one["name"], **_annotation(marks.GPU_PART)} if one["name"].endswith("MEM_FRACTION") else one for one in said
        ]
    return {**container, "env": [*container["env"], *said]}


def _counted(container: Manifest, resource: str, count: int) -> Manifest:
    asked = container.get("resources", {})
    more = {kind: {**asked.get(kind, {}), resource: str(count)} for kind in ("requests", "limits")}
    return {**container, "resources": {**asked, **more}}


def _labelled_nodes(affinity: Manifest, need: Need, nodes: Nodes) -> Manifest:
    """The pod's affinity, and beside it the labels of nodes that have GPUs of the type and size asked for."""
    wanted: list[Manifest] = []
    if need.gpu_type:
        products = {node.metadata.labels.get(PRODUCT, "") for node, _ in nodes}
        values = sorted(product for product in products if _is_of_type(product, need))
        wanted.append({"key": PRODUCT, "operator": "In", "values": values or list(need.gpu_type)})
    if need.gpu_memory:
        wanted.append({"key": MEMORY, "operator": "Gt", "values": [str((need.gpu_memory >> 20) - 1)]})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (of_nodes.get(kind) or {}).get("nodeSelectorTerms") or [{}]
    # Terms are alternatives: each of them must ask for it.
    of_nodes[kind] = {
        "nodeSelectorTerms": [{**term, "matchExpressions": [*term.get("matchExpressions", ()), *wanted]} for term in terms]
    }
    return {**affinity, "nodeAffinity": of_nodes}


def _asked(need: Need, placement: Placement) -> dict[str, str]:
    """What our scheduler is told."""
    found = {marks.GPUS: str(need.gpus)}
    found |= {marks.GPU_MILLI: str(need.gpu_milli)} if need.gpu_milli != WHOLE_GPU and not placement.alone else {}
    found |= {marks.GPU_MEMORY: str(need.gpu_memory)} if need.gpu_memory else {}
    found |= {marks.GPU_TYPES: json.dumps(list(need.gpu_type))} if need.gpu_type else {}
    return found | ({marks.DEVICES: json.dumps(list(placement.devices))} if placement.devices else {})
