"""A node of the cluster as the rest of Fairway knows nodes. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes import amounts, marks
from fairway.engines.kubernetes.objects import Node as NodeObject
from fairway.engines.kubernetes.objects import condition
from fairway.state.node import Node


def node_of(found: NodeObject) -> Node:
    """What it can give, whatever is in use."""
    given = found.status.allocatable or found.status.capacity
    others = {name: amounts.whole(text) for name, text in given.items() if "/" in name}
    labels = found.metadata.labels
    return Node(
        found.metadata.name,
        cpu=amounts.milli(given.get("cpu", "0")) / 1000,
        memory=amounts.whole(given.get("memory", "0")),
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
