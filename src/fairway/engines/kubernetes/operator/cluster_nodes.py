"""A node of the cluster as the rest of Fairway knows nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairway.engines.kubernetes import amounts, gpus, marks
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.objects import GpuNode, condition
from fairway.engines.kubernetes.objects import Node as NodeObject
from fairway.state.node import Node


def both(nodes: Mirror[NodeObject], gpu_nodes: Mirror[GpuNode]) -> Callable[[], Iterable[tuple[NodeObject, GpuNode | None]]]:
    """Every node as it is when it is asked for, with what its agent says of its GPUs."""
    return lambda: ((node, gpu_nodes.get(node.metadata.name)) for node in nodes)


def node_of(found: NodeObject, its_gpus: GpuNode | None = None) -> Node:
    """What it can give, whatever is in use. GPUs that the kubelet picks are a number among the other resources."""
    given = found.status.allocatable or found.status.capacity
    others = {name: amounts.whole(text) for name, text in given.items() if "/" in name}
    labels = found.metadata.labels
    return Node(
        found.metadata.name,
        cpu=amounts.milli(given.get("cpu", "0")) / 1000,
        memory=amounts.whole(given.get("memory", "0")),
        devices=gpus.ours(found, its_gpus),
        other=others,
        labels=dict(labels),
        taints=tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in found.spec.taints),
        rack=next((labels[name] for name in marks.RACK_LABELS if name in labels), ""),
        tasks=amounts.whole(given.get("pods", "0")),
    )


def is_ready(found: NodeObject) -> bool:
    """Whether its kubelet answers; one of which nothing was said yet counts as ready."""
    told = condition(found.status.conditions, "Ready")
    return told is None or told.status == "True"
