"""Examines the cluster before installation: other components that are present, and whether it provisions volumes."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.cluster_component import ClusterComponents, found

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True, slots=True)
class ClusterFindings:
    """The findings about a cluster."""

    neighbours: ClusterComponents = ClusterComponents()
    makes_volumes: bool = True
    """Whether a claim without a storage class gets a volume."""


async def discover(client: ApiClient) -> ClusterFindings:
    """Examine the cluster."""
    listed = await client.plain("/apis")
    groups = {group["name"] for group in listed.get("groups", ())}
    classes = await client.list(api_resource.STORAGE_CLASSES)
    default = any(item.metadata.annotations.get(DEFAULT_CLASS) == "true" for item in classes.items)
    return ClusterFindings(found(groups), default)
