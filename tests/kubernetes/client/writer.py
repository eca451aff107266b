"""A process that does one write of the API, and crashes at the given point."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fairway.app.system import crash_point
from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import api, api_resource
from fairway.engines.kubernetes.client import kubeconfig as client_kubeconfig
from fairway.engines.kubernetes.client.api import ApiClient


async def main(kubeconfig: str, namespace: str, name: str, place: str) -> None:
    async with api.connect(client_kubeconfig.read_kubeconfig(Path(kubeconfig)).target(), SystemClock()) as client:
        seen = await client.get(api_resource.PODS, name, namespace)
        crash_point.arm(place)
        await _write(client, namespace, name, place.split(":")[0], seen.metadata.uid)


async def _write(client: ApiClient, namespace: str, name: str, point: str, uid: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    label = [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]
    whole = await client.plain(api_resource.PODS.one(name, namespace))
    whole["metadata"]["labels"] = {"x": "y"}
    acts = {
        "api.create": lambda: client.create(api_resource.CONFIG_MAPS, body, namespace),
        "api.apply": lambda: client.apply(api_resource.CONFIG_MAPS, body, manager="m"),
        "api.patch": lambda: client.patch(api_resource.PODS, name, namespace, label),
        "api.replace": lambda: client.replace(api_resource.PODS, whole, namespace),
        "api.delete": lambda: client.delete(api_resource.PODS, name, namespace, uid=uid, grace=0),
        "api.bind": lambda: client.bind(name, namespace, "n1", uid=uid),
        "api.evict": lambda: client.evict(name, namespace, uid=uid, grace=0),
        "api.scale": lambda: client.scale(api_resource.DEPLOYMENTS, name, namespace, 2),
    }
    await acts[point]()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
