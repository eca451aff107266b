"""The agent's reports: the status of its `GpuNode`, a condition and a taint of the node. Pure.

Our scheduler does not use an unhealthy GPU, and the condition shows it; the taint keeps pods away from a node on which no GPU
works.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairway.engines.kubernetes import annotation, gpu_allocation
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.objects import GpuEntry, GpuNodeStatus, KubernetesNode, NodeTaint, condition
from fairway.engines.kubernetes.timestamp import stamp
from fairway.state.node import NodeDevice
from fairway.units import quantity

Body = dict[str, Any]

CONDITION = "GpuUnhealthy"
TAINT = NodeTaint(f"{annotation.DOMAIN}/gpu-unhealthy", "", "NoSchedule")
SICK = "its driver reports errors that make results wrong, or it does not answer"


def status_of(
    devices: Sequence[NodeDevice], driver: str, handed_out_by: str, endpoint: str, faults: Sequence[str] = ()
) -> GpuNodeStatus:
    """Return the status with the devices and the agent's faults."""
    reported = tuple(
        GpuEntry(
            uuid=device.uuid,
            index=device.index,
            type=device.type,
            memory=device.memory,
            numa=device.numa,
            island=device.island,
            healthy=device.healthy,
            reason="" if device.healthy else SICK,
        )
        for device in devices
    )
    return GpuNodeStatus(reported, driver, handed_out_by, endpoint, tuple(faults))


def giver_of(node: KubernetesNode, managed: bool) -> str:
    """Return which component allocates the node's GPUs, for display.

    A plug-in has precedence, since it ignores our allocations.
    """
    if gpu_allocation.by_plugin(node):
        return "a device plug-in" + ("; managed: true is ignored until the plug-in is removed from this node" if managed else "")
    return "Fairway" if managed else "nobody"


def new_node(node: KubernetesNode, managed: bool) -> Body:
    """Return a new `GpuNode`, owned by the node. From then on an administrator edits its spec."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
    return {**_head(node.metadata.name, {"ownerReferences": [owner]}), "spec": {"managed": managed}}


def status_body(name: str, status: GpuNodeStatus, now: float) -> Body:
    """Return the status to apply, with a summary for users."""
    reported = status.gpus
    content = {
        "type": "+".join(dict.fromkeys(gpu.type for gpu in reported if gpu.type)),
        "count": len(reported),
        "healthy": sum(gpu.healthy for gpu in reported),
        "memory": quantity.show_bytes(min((gpu.memory for gpu in reported), default=0)),
        "driver": status.driver,
        "handedOutBy": status.handed_out_by,
        "endpoint": status.endpoint,
        "faults": list(status.faults),
        "heartbeat": stamp(now),
        "gpus": [_gpu(gpu) for gpu in reported],
    }
    return {**_head(name), "status": content}


def _head(name: str, more: Body | None = None) -> Body:
    resource = api_resource.GPU_NODES
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name, **(more or {})}}


def _gpu(one: GpuEntry) -> Body:
    return {
        "uuid": one.uuid,
        "index": one.index,
        "type": one.type,
        "memory": one.memory,
        "numa": one.numa,
        "island": one.island,
        "healthy": one.healthy,
        "reason": one.reason,
    }


def condition_body(node: KubernetesNode, devices: Sequence[NodeDevice], now: float) -> Body | None:
    """Return the node's condition to apply; None when it is up to date, or when there is nothing to report."""
    sick = [device for device in devices if not device.healthy]
    current = condition(node.status.conditions, CONDITION)
    if current is None and not sick:
        return None
    status, reason = ("True", "GpuSick") if sick else ("False", "AllGpusWork")
    names = ", ".join(f"{device.index} ({device.uuid})" for device in sick)
    message = f"GPU {names}: {SICK}" if sick else f"{len(devices)} GPUs work"
    if current is not None and (current.status, current.reason, current.message) == (status, reason, message):
        return None
    since = current.last_transition_time if current is not None and current.status == status else None
    updated = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp(now),
        "lastTransitionTime": since or stamp(now),
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.metadata.name}, "status": {"conditions": [updated]}}


def taint_patch(node: KubernetesNode, devices: Sequence[NodeDevice]) -> list[Body]:
    """Return the patch of the node's taints, which only applies to this version of the node; empty when no change is needed."""
    tainted = bool(devices) and not any(device.healthy for device in devices)
    positions = [position for position, taint in enumerate(node.spec.taints) if taint.key == TAINT.key]
    if tainted == bool(positions):
        return []
    test: Body = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
    if not tainted:
        # The last first, so that the positions of the others stay valid.
        return [test, *({"op": "remove", "path": f"/spec/taints/{position}"} for position in reversed(positions))]
    taint = {"key": TAINT.key, "effect": TAINT.effect}
    if not node.spec.taints:
        return [test, {"op": "add", "path": "/spec/taints", "value": [taint]}]
    return [test, {"op": "add", "path": "/spec/taints/-", "value": taint}]
