"""A process that does one write of the API, and dies where it is told."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fairway.app import crash
from fairway.app.system import SystemClock
from fairway.engines.kubernetes.client import api, config, kinds
from fairway.engines.kubernetes.client.api import Client


async def main(kubeconfig: str, namespace: str, name: str, place: str) -> None:
    async with api.connect(config.read_kubeconfig(Path(kubeconfig)).target(), SystemClock()) as client:
        seen = await client.get(kinds.PODS, name, namespace)
        crash.arm(place)
        await _write(client, namespace, name, place.split(":")[0], seen.metadata.uid)


async def _write(client: Client, namespace: str, name: str, point: str, uid: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    label = [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]
    whole = await client.plain(kinds.PODS.one(name, namespace))
    whole["metadata"]["labels"] = {"x": "y"}
    acts = {
        "api.create": lambda: client.create(kinds.CONFIG_MAPS, body, namespace),
        "api.apply": lambda: client.apply(kinds.CONFIG_MAPS, body, manager="m"),
        "api.patch": lambda: client.patch(kinds.PODS, name, namespace, label),
        "api.replace": lambda: client.replace(kinds.PODS, whole, namespace),
        "api.delete": lambda: client.delete(kinds.PODS, name, namespace, uid=uid, grace=0),
        "api.bind": lambda: client.bind(name, namespace, "n1", uid=uid),
        "api.evict": lambda: client.evict(name, namespace, uid=uid, grace=0),
        "api.scale": lambda: client.scale(kinds.DEPLOYMENTS, name, namespace, 2),
    }
    await acts[point]()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
