"""What all installed objects have in common: their head, and the section that they belong to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.operator.installation import Installation
from fairway.version import VERSION

Manifest = dict[str, Any]

PART_OF = {"app.kubernetes.io/part-of": "fairway"}
VERSION_LABEL = "app.kubernetes.io/version"
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Section:
    """Objects that are installed together or not at all."""

    name: str
    objects: Callable[[Installation], list[Manifest]]
    wanted: Callable[[Installation], bool] = lambda _installation: True
    condition: str = ""
    """The same as `wanted`, as a Helm chart says it of its values; empty: always."""


def labels() -> dict[str, str]:
    """By which what is ours is known, and how old it is."""
    return {marks.MANAGED_BY: marks.MANAGER, **PART_OF, VERSION_LABEL: VERSION}


def head(kind: str, name: str, namespace: str = "", api: str = "v1") -> Manifest:
    """The beginning of an object."""
    metadata: Manifest = {"name": name, "labels": labels()}
    return {"apiVersion": api, "kind": kind, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}
