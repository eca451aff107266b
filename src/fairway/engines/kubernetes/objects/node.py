"""Nodes."""

from __future__ import annotations

import msgspec

from fairway.engines.kubernetes.objects.meta import Condition, Part, Thing


class Taint(Part, frozen=True):
    """A taint, which repels pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(Part, frozen=True):
    """The desired state of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class Address(Part, frozen=True):
    """An address of a node."""

    type: str
    address: str


class NodeStatus(Part, frozen=True):
    """The actual state of a node."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[Address, ...] = ()


class Node(Thing, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
