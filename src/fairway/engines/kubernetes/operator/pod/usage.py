"""What pods use now: processors and memory from the cluster's metrics if available, GPUs from the agents of their nodes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from fairway.app.port.port import TaskUsage
from fairway.engines.kubernetes import annotation, quantity
from fairway.engines.kubernetes.agent import gpu_usage, token_review
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.identity.pod_authenticator import agent_name
from fairway.engines.kubernetes.objects import GpuNode, Pod
from fairway.state.task import TaskKey

METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
"""The path of metrics-server's API."""


async def look(
    client: ApiClient,
    pods: Mapping[TaskKey, Pod],
    gpu_nodes: Informer[GpuNode] | None,
    trusted: ssl.SSLContext | None = None,
) -> dict[TaskKey, TaskUsage]:
    """Return what those of the pods use that are running; pods without a measurement are left out.

    `trusted` verifies agents.
    """
    running = {key: pod for key, pod in pods.items() if pod.status.phase == "Running"}
    spaces = {pod.metadata.namespace for pod in running.values()}
    measured = {space: await _measured(client, space) for space in spaces}
    used = await _use(running.values(), gpu_nodes, trusted)
    usage = {}
    for key, pod in running.items():
        cpu, memory = measured[pod.metadata.namespace].get(pod.metadata.name, (None, None))
        shares = [used[uuid] for uuid in _devices(pod) if uuid in used]
        part = sum(shares) / len(shares) if shares else None
        if cpu is not None or part is not None:
            usage[key] = TaskUsage(cpu, memory, part)
    return usage


def _devices(pod: Pod) -> list[str]:
    return [uuid for uuid in pod.metadata.annotations.get(annotation.GPU_IDS, "").split(",") if uuid]


async def _measured(client: ApiClient, namespace: str) -> dict[str, tuple[float, int]]:
    """Return cores and bytes by pod; empty where the cluster has no metrics."""
    try:
        answer = await client.plain(METRICS.format(namespace=namespace))
    except errors.ApiError:
        return {}
    return {item["metadata"]["name"]: _sum(item.get("containers", ())) for item in answer.get("items", ())}


def _sum(containers: Iterable[Mapping[str, Any]]) -> tuple[float, int]:
    used = [item.get("usage", {}) for item in containers]
    cpu = sum(float(quantity.exact(item.get("cpu", "0"))) for item in used)
    return cpu, sum(quantity.whole(item.get("memory", "0")) for item in used)


async def _use(pods: Iterable[Pod], gpu_nodes: Informer[GpuNode] | None, trusted: ssl.SSLContext | None) -> dict[str, float]:
    """Return how busy the devices of these pods are; each node's agent is queried once."""
    names = {pod.spec.node_name for pod in pods if _devices(pod)}
    nodes = [known_node for name in names if gpu_nodes is not None and (known_node := gpu_nodes.get(name)) is not None]
    token = token_review.own_token() if nodes else ""
    targets = [(gpu_node.status.endpoint, agent_name(gpu_node.metadata.name)) for gpu_node in nodes if gpu_node.status.endpoint]
    answers = await asyncio.gather(*(gpu_usage.ask(endpoint, token, name, trusted) for endpoint, name in targets))
    return {uuid: part for answer in answers for uuid, part in answer.items()}
