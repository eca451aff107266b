"""A node of the cluster as the rest of Fairway knows nodes. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes.objects import Node as NodeObject
from fairway.engines.kubernetes.objects import condition
from fairway.state.node import Node
from fairway.units import quantity

RACK_LABELS = ("fairway.dev/rack", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone")


def node_of(found: NodeObject) -> Node:
    """What it can give, whatever is in use."""
    given = found.status.allocatable or found.status.capacity
    others = {name: int(quantity.number(text)) for name, text in given.items() if "/" in name and text.isdigit()}
    labels = found.metadata.labels
    return Node(
        found.metadata.name,
        cpu=quantity.number(given.get("cpu", "0")),
        memory=int(quantity.byte_count(given.get("memory", "0"))),
        other=others,
        labels=dict(labels),
        taints=tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in found.spec.taints),
        rack=next((labels[name] for name in RACK_LABELS if name in labels), ""),
        tasks=int(given.get("pods", "0")),
    )


def is_ready(found: NodeObject) -> bool:
    """Whether its kubelet answers; one of which nothing was said yet counts as ready."""
    told = condition(found.status.conditions, "Ready")
    return told is None or told.status == "True"
