"""Views of nodes and devices: total, used and free capacity."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.task import Task
from fairway.units.notebook_card import NotebookView


class DeviceView(msgspec.Struct, frozen=True):
    """An accelerator."""

    index: int
    uuid: str
    type: str
    memory: int
    healthy: bool
    used: float
    """Fraction from 0 to 1 that Fairway's tasks hold."""
    free: float
    """Fraction that a task could still get; 0 if it is unhealthy or another program uses it."""
    used_by: tuple[str, ...] = ()
    """The tasks that use it, such as `mnist-7/worker-0`."""
    busy_with: str = ""
    """The programs outside Fairway that use it."""


class NodeView(NotebookView, frozen=True):
    """A machine."""

    name: str
    cpu: float
    cpu_used: float
    cpu_free: float
    memory: int
    memory_used: int
    memory_free: int
    gpus: int
    gpus_free: float
    devices: tuple[DeviceView, ...]
    other: dict[str, int]
    other_free: dict[str, int]
    labels: dict[str, str]
    tasks: tuple[str, ...]
    """The tasks that hold resources here, such as `mnist-7/worker-0`."""


class NodeList(msgspec.Struct, frozen=True):
    """All nodes."""

    nodes: tuple[NodeView, ...]


def node_view(node: ClusterNode, tasks: Iterable[Task]) -> NodeView:
    """Return the view of a node with the use by the given tasks."""
    tasks_here = [task for task in tasks if task.node == node.name and task.phase.holds_resources]
    cpu = sum(task.need.cpu for task in tasks_here)
    memory = sum(task.need.memory for task in tasks_here)
    devices = tuple(device_view(device, tasks_here) for device in node.devices)
    used_other = {name: sum(task.need.other.get(name, 0) for task in tasks_here) for name in node.other}
    return NodeView(
        name=node.name,
        cpu=node.cpu,
        cpu_used=cpu,
        cpu_free=max(0.0, node.cpu - cpu),
        memory=node.memory,
        memory_used=memory,
        memory_free=max(0, node.memory - memory),
        gpus=len(devices),
        gpus_free=sum(device.free for device in devices),
        devices=devices,
        other=node.other,
        other_free={name: max(0, total - used_other[name]) for name, total in node.other.items()},
        labels=node.labels,
        tasks=tuple(_address(task) for task in tasks_here),
    )


def device_view(device: NodeDevice, tasks: Iterable[Task]) -> DeviceView:
    """Return the view of a device with the use by the given tasks."""
    holders = [task for task in tasks if device.uuid in task.devices]
    # A task with several devices holds each of them completely; a fraction below one is a share of a single device.
    used = min(1.0, sum(task.need.gpu_milli for task in holders) / 1000)
    return DeviceView(
        index=device.index,
        uuid=device.uuid,
        type=device.type,
        memory=device.memory,
        healthy=device.healthy,
        used=used,
        free=1.0 - used if device.healthy and not device.busy_with else 0.0,
        used_by=tuple(_address(task) for task in holders),
        busy_with=device.busy_with,
    )


def _address(task: Task) -> str:
    return f"{task.key.job}/{task.key.task}"
