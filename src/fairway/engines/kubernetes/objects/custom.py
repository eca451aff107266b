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

    def spec_data(self) -> dict[str, Any]:
        """The spec as plain data."""
        found: dict[str, Any] = msgspec.json.decode(self.spec)
        return found


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
