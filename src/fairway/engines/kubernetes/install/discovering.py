"""Examines the cluster before installation: other components that are present, and whether it provisions volumes."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.neighbours import Neighbours, found

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True, slots=True)
class Ground:
    """The findings about a cluster."""

    neighbours: Neighbours = Neighbours()
    makes_volumes: bool = True
    """Whether a claim without a storage class gets a volume."""


async def discover(client: Client) -> Ground:
    """Examine the cluster."""
    listed = await client.plain("/apis")
    groups = {group["name"] for group in listed.get("groups", ())}
    classes = await client.list(kinds.STORAGE_CLASSES)
    default = any(item.metadata.annotations.get(DEFAULT_CLASS) == "true" for item in classes.items)
    return Ground(found(groups), default)
