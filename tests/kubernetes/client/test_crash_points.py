"""Every write to the API is a crash point: a process is killed right before and right after each."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from api_world import pod
from cluster.control_plane import ControlPlane

from fairway.app.system import crash_point
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient

WRITER = Path(__file__).with_name("writer.py")


@pytest.mark.parametrize("point", crash_point.API_POINTS)
async def test_each_is_reached(control_plane: ControlPlane, client: ApiClient, namespace: str, point: str) -> None:
    async def dies(moment: str) -> bool:
        name = f"{point.partition('.')[2]}-{moment}"
        before = await client.create(api_resource.PODS, pod(name), namespace)
        await client.apply(api_resource.DEPLOYMENTS, _deployment(name, namespace), manager="m")
        process = await asyncio.create_subprocess_exec(
            sys.executable, WRITER, control_plane.kubeconfig(), namespace, name, f"{point}:{moment}"
        )
        assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
        return await _trace(client, namespace, name, before.metadata.resource_version)

    assert await asyncio.gather(dies("before"), dies("after")) == [False, True]


def _deployment(name: str, namespace: str) -> dict:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


async def _trace(client: ApiClient, namespace: str, name: str, version: str) -> bool:
    """Whether anything was written."""
    maps = await client.list(api_resource.CONFIG_MAPS, namespace, fields=f"metadata.name={name}")
    pods = await client.list(api_resource.PODS, namespace, fields=f"metadata.name={name}")
    scale = await client.scale_of(api_resource.DEPLOYMENTS, name, namespace)
    return bool(maps.items) or scale.spec.replicas > 0 or [one.metadata.resource_version for one in pods.items] != [version]
