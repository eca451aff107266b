"""Our own kinds, and the definitions that make them known."""

from __future__ import annotations

from typing import Any

import msgspec

from fairway.engines.kubernetes.objects.meta import Condition, Part, Thing, condition


class Custom(Thing, frozen=True):
    """One of ours: the spec as it came, for the models of `fairway.spec`; the status as plain data."""

    api_version: str = ""
    kind: str = ""
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: dict[str, Any] = {}

    def __post_init__(self) -> None:
        # As it was read, it would keep everything it was read from: `managedFields`, a page of a list.
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())

    def spec_data(self) -> dict[str, Any]:
        """The spec as plain data."""
        found: dict[str, Any] = msgspec.json.decode(self.spec)
        return found


class Gpu(Part, frozen=True):
    """One GPU of a node."""

    uuid: str
    index: int = 0
    type: str = ""
    memory: int = 0
    numa: int = -1
    island: str = ""
    healthy: bool = True
    reason: str = ""


class GpuNodeSpec(Part, frozen=True):
    """What an administrator says of a node's GPUs."""

    managed: bool = False
    """Whether our scheduler hands them out."""
    mode: str = "shared"
    exclude: tuple[str, ...] = ()


class GpuNodeStatus(Part, frozen=True):
    """What the node's agent says of them."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    handed_out_by: str = ""
    endpoint: str = ""
    """Where the agent says how busy they are."""
    faults: tuple[str, ...] = ()
    """What the agent fails at, each with its cause."""


class GpuNode(Thing, frozen=True):
    """The GPUs of the node of the same name."""

    spec: GpuNodeSpec = GpuNodeSpec()
    status: GpuNodeStatus = GpuNodeStatus()


class DefinitionStatus(Part, frozen=True):
    """Whether the API server serves the kind."""

    conditions: tuple[Condition, ...] | None = None


class Definition(Thing, frozen=True):
    """A CustomResourceDefinition."""

    status: DefinitionStatus = DefinitionStatus()

    @property
    def established(self) -> bool:
        """Whether objects of the kind can be made."""
        found = condition(self.status.conditions or (), "Established")
        return found is not None and found.status == "True"
