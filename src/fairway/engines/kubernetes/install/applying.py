"""Carries an installation out: applies every object, waits for our kinds, and takes all of it away again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.paths import Resource
from fairway.errors import UnavailableError

MANAGER = "fairway-install"
PATIENCE = 60.0
"""Seconds until a kind that was defined must be served."""
DEFINITION = "CustomResourceDefinition"

Say = Callable[[str], None]
Manifest = dict[str, Any]


async def apply_all(client: Client, manifests: Iterable[Manifest], say: Say) -> None:
    """Make it so, in order; what is so already stays. Each object is told of as it is done."""
    for one in manifests:
        resource = await _resource(client, one)
        await client.apply(resource, one, manager=MANAGER)
        say(f"{called(one)} is there")
        if one["kind"] == DEFINITION:
            await _served(client, one["metadata"]["name"])


async def remove_all(client: Client, manifests: Iterable[Manifest], say: Say, *, definitions: bool = False) -> None:
    """Take it away, the last first. Definitions stay, and with them everybody's objects, unless they are asked for too."""
    gone = [one for one in manifests if one["kind"] != "Namespace" and (definitions or one["kind"] != DEFINITION)]
    for one in reversed(gone):
        resource = await _resource(client, one)
        namespace = one["metadata"].get("namespace", "")
        if await client.delete(resource, one["metadata"]["name"], namespace):
            say(f"{called(one)} is gone")
    await _let_pods_go(client, say)


async def _let_pods_go(client: Client, say: Say) -> None:
    """Nobody is left to record how pods end, so that none may wait for that."""
    listed = await client.list(kinds.PODS, labels=f"{marks.MANAGED_BY}={marks.MANAGER}")
    for pod in listed.items:
        others = [name for name in pod.metadata.finalizers if not name.startswith(f"{marks.DOMAIN}/")]
        if len(others) == len(pod.metadata.finalizers):
            continue
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        change = {"op": "replace", "path": "/metadata/finalizers", "value": others}
        try:
            await client.patch(kinds.PODS, pod.metadata.name, pod.metadata.namespace, [test, change])
        except errors.NotFound:
            continue
        say(f"Pod {pod.metadata.namespace}/{pod.metadata.name} is nobody's any more")


def called(one: Manifest) -> str:
    """`Deployment fairway-system/fairway-operator`."""
    metadata = one["metadata"]
    return (
        f"{one['kind']} {metadata['namespace']}/{metadata['name']}"
        if "namespace" in metadata
        else f"{one['kind']} {metadata['name']}"
    )


async def _resource(client: Client, one: Manifest) -> Resource[Any]:
    return await client.resource(one["apiVersion"], one["kind"])


async def _served(client: Client, name: str) -> None:
    """Wait until the API server serves a kind that was defined just now."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (await client.get(kinds.DEFINITIONS, name)).established:
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        message = f"the API server has not taken {name} within {PATIENCE:g} s"
        raise UnavailableError(message, fix=f"see `kubectl describe crd {name}`") from error
