"""A client of the test cluster's API server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # makes `api_world` importable for the tests beside it

from api_world import until
from cluster.control_plane import ControlPlane

from fairway.app.system import SystemClock
from fairway.engines.kubernetes.client import api, config, errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.crds import definitions


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    """The administrator's."""
    async with api.connect(config.read_kubeconfig(control_plane.kubeconfig()).target(), SystemClock()) as made:
        yield made


@pytest.fixture
async def namespace(namespace: str, client: Client) -> str:
    """A namespace that takes pods: its service account is there."""
    accounts = await client.resource("v1", "ServiceAccount")

    async def there() -> bool:
        return "default" in [one["metadata"]["name"] for one in (await client.list(accounts, namespace)).items]

    await until(there)
    return namespace


@pytest.fixture
async def our_kinds(client: Client) -> None:
    """Our definitions, taken and in use."""
    for definition in definitions():
        await client.apply(kinds.DEFINITIONS, definition, manager="fairway-install")
    for definition in definitions():
        name = definition["metadata"]["name"]
        await until(lambda name=name: _established(client, name))
    await until(lambda: _served(client))


async def _established(client: Client, name: str) -> bool:
    return (await client.get(kinds.DEFINITIONS, name)).established


async def _served(client: Client) -> bool:
    try:
        for resource in (kinds.TRAINING_JOBS, kinds.MODEL_SERVICES, kinds.JOB_QUEUES, kinds.GPU_NODES):
            await client.list(resource)
    except errors.NotFound:
        return False
    return True
