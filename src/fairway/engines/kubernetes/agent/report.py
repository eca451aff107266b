"""What the agent says of its node: the status of its `GpuNode`, a condition and a taint of the node. Pure.

Our scheduler leaves a sick GPU out, and the condition tells of it; a node on which no GPU works keeps pods away by the taint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairway.engines.kubernetes import gpus, marks
from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.objects import Gpu, GpuNodeStatus, Node, Taint, condition
from fairway.engines.kubernetes.times import stamp
from fairway.state.node import Device
from fairway.units import quantity

Body = dict[str, Any]

CONDITION = "GpuUnhealthy"
TAINT = Taint(f"{marks.DOMAIN}/gpu-unhealthy", "", "NoSchedule")
SICK = "its driver reports errors that make results wrong, or it does not answer"


def status_of(
    devices: Sequence[Device], driver: str, handed_out_by: str, endpoint: str, faults: Sequence[str] = ()
) -> GpuNodeStatus:
    """What is told of the devices, and what the agent fails at."""
    found = tuple(
        Gpu(
            uuid=one.uuid,
            index=one.index,
            type=one.type,
            memory=one.memory,
            numa=one.numa,
            island=one.island,
            healthy=one.healthy,
            reason="" if one.healthy else SICK,
        )
        for one in devices
    )
    return GpuNodeStatus(found, driver, handed_out_by, endpoint, tuple(faults))


def giver_of(node: Node, managed: bool) -> str:
    """Who hands out the GPUs of the node, for people. A plug-in goes before us: it does not know what we gave away."""
    if gpus.by_plugin(node):
        return "a device plug-in" + ("; managed: true is not heeded until it is taken off this node" if managed else "")
    return "Fairway" if managed else "nobody"


def new_node(node: Node, managed: bool) -> Body:
    """The `GpuNode` of a node, before anything is told; it goes with the node. Its spec is an administrator's from then on."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
    return {**_head(node.metadata.name, {"ownerReferences": [owner]}), "spec": {"managed": managed}}


def status_body(name: str, status: GpuNodeStatus, now: float) -> Body:
    """The status, to be applied: with what people look for beside it."""
    own = status.gpus
    told = {
        "type": "+".join(dict.fromkeys(one.type for one in own if one.type)),
        "count": len(own),
        "healthy": sum(one.healthy for one in own),
        "memory": quantity.show_bytes(min((one.memory for one in own), default=0)),
        "driver": status.driver,
        "handedOutBy": status.handed_out_by,
        "endpoint": status.endpoint,
        "faults": list(status.faults),
        "heartbeat": stamp(now),
        "gpus": [_gpu(one) for one in own],
    }
    return {**_head(name), "status": told}


def _head(name: str, more: Body | None = None) -> Body:
    resource = kinds.GPU_NODES
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name, **(more or {})}}


def _gpu(one: Gpu) -> Body:
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


def condition_body(node: Node, devices: Sequence[Device], now: float) -> Body | None:
    """The condition of the node, to be applied; None when it says so already, or when there is nothing to say."""
    sick = [device for device in devices if not device.healthy]
    said = condition(node.status.conditions, CONDITION)
    if said is None and not sick:
        return None
    status, reason = ("True", "GpuSick") if sick else ("False", "AllGpusWork")
    names = ", ".join(f"{device.index} ({device.uuid})" for device in sick)
    message = f"GPU {names}: {SICK}" if sick else f"{len(devices)} GPUs work"
    if said is not None and (said.status, said.reason, said.message) == (status, reason, message):
        return None
    since = said.last_transition_time if said is not None and said.status == status else None
    told = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp(now),
        "lastTransitionTime": since or stamp(now),
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.metadata.name}, "status": {"conditions": [told]}}


def taint_patch(node: Node, devices: Sequence[Device]) -> list[Body]:
    """What must be changed in the node's taints, by a patch that holds for this very state of the node; nothing: all is well."""
    wanted = bool(devices) and not any(device.healthy for device in devices)
    own = [at for at, taint in enumerate(node.spec.taints) if taint.key == TAINT.key]
    if wanted == bool(own):
        return []
    test: Body = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version}
    if not wanted:
        # The last first, so that the places of the others stay.
        return [test, *({"op": "remove", "path": f"/spec/taints/{at}"} for at in reversed(own))]
    taint = {"key": TAINT.key, "effect": TAINT.effect}
    if not node.spec.taints:
        return [test, {"op": "add", "path": "/spec/taints", "value": [taint]}]
    return [test, {"op": "add", "path": "/spec/taints/-", "value": taint}]
