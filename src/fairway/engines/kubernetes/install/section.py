"""What all installed objects have in common: their metadata, and the section that they belong to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.version import VERSION

Manifest = dict[str, Any]

PART_OF = {"app.kubernetes.io/part-of": "fairway"}
VERSION_LABEL = "app.kubernetes.io/version"
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class InstallSection:
    """Objects that are installed together or not at all."""

    name: str
    objects: Callable[[InstallationSettings], list[Manifest]]
    wanted: Callable[[InstallationSettings], bool] = lambda _installation: True
    condition: str = ""
    """The same as `wanted`, as a Helm condition on the chart's values; empty: always."""


def labels() -> dict[str, str]:
    """Return the labels that identify our objects and their version."""
    return {annotation.MANAGED_BY: annotation.MANAGER, **PART_OF, VERSION_LABEL: VERSION}


def head(kind: str, name: str, namespace: str = "", api: str = "v1") -> Manifest:
    """Return the beginning of an object: API version, kind and metadata."""
    metadata: Manifest = {"name": name, "labels": labels()}
    return {"apiVersion": api, "kind": kind, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}
