"""Nodes."""

from __future__ import annotations

import msgspec

from fairway.engines.kubernetes.objects.meta import KubernetesObject, ObjectCondition, ObjectPart


class NodeTaint(ObjectPart, frozen=True):
    """A taint, which repels pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(ObjectPart, frozen=True):
    """The desired state of a node."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeAddress(ObjectPart, frozen=True):
    """An address of a node."""

    type: str
    address: str


class NodeStatus(ObjectPart, frozen=True):
    """The actual state of a node."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[ObjectCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class KubernetesNode(KubernetesObject, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
