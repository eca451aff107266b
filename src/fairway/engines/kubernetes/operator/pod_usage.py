"""What pods use now: processors and memory from the cluster's metrics where there are any, GPUs from their nodes' agents."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from fairway.app.ports import TaskUsage
from fairway.engines.kubernetes import amounts, marks
from fairway.engines.kubernetes.agent import busy, known
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.objects import GpuNode, Pod
from fairway.engines.kubernetes.proof import agent_name
from fairway.state.task import TaskKey

METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
"""What metrics-server serves."""


async def look(
    client: Client,
    pods: Mapping[TaskKey, Pod],
    gpu_nodes: Mirror[GpuNode] | None,
    trusted: ssl.SSLContext | None = None,
) -> dict[TaskKey, TaskUsage]:
    """What those of these pods use that run, as far as it is measured; pods without a measurement are left out.

    `trusted` verifies agents.
    """
    running = {key: pod for key, pod in pods.items() if pod.status.phase == "Running"}
    spaces = {pod.metadata.namespace for pod in running.values()}
    measured = {space: await _measured(client, space) for space in spaces}
    used = await _use(running.values(), gpu_nodes, trusted)
    found = {}
    for key, pod in running.items():
        cpu, memory = measured[pod.metadata.namespace].get(pod.metadata.name, (None, None))
        own = [used[uuid] for uuid in _devices(pod) if uuid in used]
        part = sum(own) / len(own) if own else None
        if cpu is not None or part is not None:
            found[key] = TaskUsage(cpu, memory, part)
    return found


def _devices(pod: Pod) -> list[str]:
    return [uuid for uuid in pod.metadata.annotations.get(marks.GPU_IDS, "").split(",") if uuid]


async def _measured(client: Client, namespace: str) -> dict[str, tuple[float, int]]:
    """Cores and bytes by pod; nothing where nobody measures."""
    try:
        answer = await client.plain(METRICS.format(namespace=namespace))
    except errors.ApiError:
        return {}
    return {one["metadata"]["name"]: _sum(one.get("containers", ())) for one in answer.get("items", ())}


def _sum(containers: Iterable[Mapping[str, Any]]) -> tuple[float, int]:
    used = [one.get("usage", {}) for one in containers]
    cpu = sum(float(amounts.exact(one.get("cpu", "0"))) for one in used)
    return cpu, sum(amounts.whole(one.get("memory", "0")) for one in used)


async def _use(pods: Iterable[Pod], gpu_nodes: Mirror[GpuNode] | None, trusted: ssl.SSLContext | None) -> dict[str, float]:
    """How busy the devices are that these pods have; each node is asked once."""
    names = {pod.spec.node_name for pod in pods if _devices(pod)}
    nodes = [found for name in names if gpu_nodes is not None and (found := gpu_nodes.get(name)) is not None]
    token = known.own_token() if nodes else ""
    asked = [(one.status.endpoint, agent_name(one.metadata.name)) for one in nodes if one.status.endpoint]
    answers = await asyncio.gather(*(busy.ask(endpoint, token, name, trusted) for endpoint, name in asked))
    return {uuid: part for answer in answers for uuid, part in answer.items()}
