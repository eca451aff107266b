"""What the cluster itself says before anything is installed on it: who else is there, and whether it makes volumes."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.neighbours import Neighbours, found

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True, slots=True)
class Ground:
    """What there is."""

    neighbours: Neighbours = Neighbours()
    makes_volumes: bool = True
    """Whether a claim that names no class gets a volume."""


async def discover(client: Client) -> Ground:
    """Ask the cluster."""
    listed = await client.plain("/apis")
    groups = {group["name"] for group in listed.get("groups", ())}
    classes = await client.list(kinds.STORAGE_CLASSES)
    default = any(one.metadata.annotations.get(DEFAULT_CLASS) == "true" for one in classes.items)
    return Ground(found(groups), default)
