"""Converts nodes of the cluster to Fairway's node model."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairway.engines.kubernetes import annotation, gpu_allocation, quantity
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import GpuNode, condition
from fairway.engines.kubernetes.objects import KubernetesNode as NodeObject
from fairway.state.node import ClusterNode


def both(nodes: Informer[NodeObject], gpu_nodes: Informer[GpuNode]) -> Callable[[], Iterable[tuple[NodeObject, GpuNode | None]]]:
    """Return a function that yields every current node, each with the `GpuNode` of its agent."""
    return lambda: ((node, gpu_nodes.get(node.metadata.name)) for node in nodes)


def node_of(found: NodeObject, its_gpus: GpuNode | None = None) -> ClusterNode:
    """Return what the node can give, whatever is in use. GPUs that the kubelet allocates count among the other resources."""
    amounts_ = found.status.allocatable or found.status.capacity
    others = {name: quantity.whole(text) for name, text in amounts_.items() if "/" in name}
    labels = found.metadata.labels
    return ClusterNode(
        found.metadata.name,
        cpu=quantity.milli(amounts_.get("cpu", "0")) / 1000,
        memory=quantity.whole(amounts_.get("memory", "0")),
        devices=gpu_allocation.ours(found, its_gpus),
        other=others,
        labels=dict(labels),
        taints=tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in found.spec.taints),
        rack=next((labels[name] for name in annotation.RACK_LABELS if name in labels), ""),
        tasks=quantity.whole(amounts_.get("pods", "0")),
    )


def is_ready(found: NodeObject) -> bool:
    """Whether the node's kubelet responds; a node without a Ready condition counts as ready."""
    ready = condition(found.status.conditions, "Ready")
    return ready is None or ready.status == "True"
