"""A client of the test cluster's API server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # makes `api_world` importable for the tests beside it

from api_world import until
from cluster.control_plane import ControlPlane

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import api, api_resource, errors, kubeconfig
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.crd.definition import definitions


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[ApiClient]:
    """The administrator's client."""
    async with api.connect(kubeconfig.read_kubeconfig(control_plane.kubeconfig()).target(), SystemClock()) as made:
        yield made


@pytest.fixture
async def namespace(namespace: str, client: ApiClient) -> str:
    """A namespace that accepts pods: its service account exists."""
    accounts = await client.resource("v1", "ServiceAccount")

    async def there() -> bool:
        return "default" in [one["metadata"]["name"] for one in (await client.list(accounts, namespace)).items]

    await until(there)
    return namespace


@pytest.fixture
async def our_kinds(client: ApiClient) -> None:
    """Our definitions, installed and served."""
    for definition in definitions():
        await client.apply(api_resource.DEFINITIONS, definition, manager="fairway-install")
    for definition in definitions():
        name = definition["metadata"]["name"]
        await until(lambda name=name: _established(client, name))
    await until(lambda: _served(client))


async def _established(client: ApiClient, name: str) -> bool:
    return (await client.get(api_resource.DEFINITIONS, name)).established


async def _served(client: ApiClient) -> bool:
    try:
        for resource in (
            api_resource.TRAINING_JOBS,
            api_resource.MODEL_SERVICES,
            api_resource.JOB_QUEUES,
            api_resource.GPU_NODES,
        ):
            await client.list(resource)
    except errors.NotFound:
        return False
    return True
