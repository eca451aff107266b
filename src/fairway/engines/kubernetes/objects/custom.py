"""Our own kinds, and the definitions that introduce them."""

from __future__ import annotations

from typing import Any

import msgspec

from fairway.engines.kubernetes.objects.meta import KubernetesObject, ObjectCondition, ObjectPart, condition


class CustomObject(KubernetesObject, frozen=True):
    """An object of our kinds: the undecoded spec, for the models of `fairway.spec`; the status as plain data."""

    api_version: str = ""
    kind: str = ""
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: dict[str, Any] = {}

    def __post_init__(self) -> None:
        # Without a copy, the spec would keep its whole source in memory: `managedFields`, a page of a list.
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())

    def spec_data(self) -> dict[str, Any]:
        """Return the spec as plain data."""
        data: dict[str, Any] = msgspec.json.decode(self.spec)
        return data


class GpuEntry(ObjectPart, frozen=True):
    """One GPU of a node."""

    uuid: str
    index: int = 0
    type: str = ""
    memory: int = 0
    numa: int = -1
    island: str = ""
    healthy: bool = True
    reason: str = ""


class GpuNodeSpec(ObjectPart, frozen=True):
    """The settings of an administrator for a node's GPUs."""

    managed: bool = False
    """Whether our scheduler allocates them."""
    mode: str = "shared"
    exclude: tuple[str, ...] = ()


class GpuNodeStatus(ObjectPart, frozen=True):
    """The state of a node's GPUs, as reported by its agent."""

    gpus: tuple[GpuEntry, ...] = ()
    driver: str = ""
    handed_out_by: str = ""
    endpoint: str = ""
    """The agent's endpoint for GPU usage."""
    faults: tuple[str, ...] = ()
    """What the agent fails at, each with its cause."""


class GpuNode(KubernetesObject, frozen=True):
    """The GPUs of the node of the same name."""

    spec: GpuNodeSpec = GpuNodeSpec()
    status: GpuNodeStatus = GpuNodeStatus()


class CustomResourceDefinitionStatus(ObjectPart, frozen=True):
    """Whether the API server serves the kind."""

    conditions: tuple[ObjectCondition, ...] | None = None


class CustomResourceDefinition(KubernetesObject, frozen=True):
    """A CustomResourceDefinition."""

    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()

    @property
    def established(self) -> bool:
        """Whether objects of the kind can be created."""
        status = condition(self.status.conditions or (), "Established")
        return status is not None and status.status == "True"
