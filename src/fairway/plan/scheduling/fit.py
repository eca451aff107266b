"""Whether tasks fit on nodes, all or none, and which devices they would get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fairway.spec.resources import Placement
from fairway.state.job import Hold
from fairway.state.node import Node
from fairway.state.task import Need, Task
from fairway.units import quantity

_SLACK = 1e-9


@dataclass(slots=True)
class Room:
    """What is free on one node."""

    node: Node
    cpu: float
    memory: int
    devices: set[str]
    other: dict[str, int] = field(default_factory=dict)

    @classmethod
    def empty(cls, node: Node) -> Room:
        """All of the node, as if nothing ran on it."""
        healthy = {device.uuid for device in node.devices if device.healthy}
        return cls(node, node.cpu, node.memory, healthy, dict(node.other))

    def take(self, need: Need, devices: Iterable[str]) -> None:
        """Use some of it; it may go below zero, which then lets nothing more in."""
        self.cpu -= need.cpu
        self.memory -= need.memory
        self.devices -= set(devices)
        for name, count in need.other.items():
            self.other[name] = self.other.get(name, 0) - count


def rooms(nodes: Sequence[Node], holding: Iterable[Task]) -> list[Room]:
    """What is free on each node, given the tasks that hold room. Devices that others use are not free."""
    free = {node.name: Room.empty(node) for node in nodes}
    for room in free.values():
        room.devices -= {device.uuid for device in room.node.devices if device.busy_with}
    for task in holding:
        if task.node in free:
            free[task.node].take(task.need, task.devices)
    return list(free.values())


def place(tasks: Sequence[Task], rooms: Sequence[Room], placements: dict[str, Placement]) -> list[Task] | Hold:
    """The tasks with node and devices, or why not. Takes from `rooms` only when all of them fit."""
    trial = [replace(room, devices=set(room.devices), other=dict(room.other)) for room in rooms]
    placed: list[Task] = []
    for task in tasks:
        wish = placements.get(task.key.role, Placement())
        others = {other.node for other in placed if other.key.role == task.key.role}
        for room in trial:
            if (wish.apart and room.node.name in others) or (wish.together and others and room.node.name not in others):
                continue
            devices = _choose(task.need, room, wish)
            if devices is not None:
                room.take(task.need, devices)
                placed.append(replace(task, node=room.node.name, devices=devices))
                break
        else:
            return _explain(tasks, task, rooms, trial)
    for room, used in zip(rooms, trial, strict=True):
        room.cpu, room.memory, room.devices, room.other = used.cpu, used.memory, used.devices, used.other
    return placed


def reserve(tasks: Sequence[Task], rooms: Sequence[Room]) -> None:
    """Keep room for a gang that waits, so that nothing behind it takes what it waits for."""
    for task in tasks:
        count = int(task.need.gpu)
        for room in rooms[:1]:
            fitting = _of_type(task.need, room)
            room.take(task.need, fitting[:count])


def _choose(need: Need, room: Room, wish: Placement) -> tuple[str, ...] | None:
    if wish.nodes and room.node.name not in wish.nodes:
        return None
    if any(room.node.labels.get(name) != value for name, value in wish.labels.items()):
        return None
    if need.cpu > room.cpu + _SLACK or need.memory > room.memory:
        return None
    if any(room.other.get(name, 0) < count for name, count in need.other.items()):
        return None
    count = int(need.gpu)
    if not count:
        return ()
    fitting = _of_type(need, room)
    if wish.devices:
        index = {device.uuid: str(device.index) for device in room.node.devices}
        fitting = [uuid for uuid in fitting if uuid in wish.devices or index[uuid] in wish.devices]
    return tuple(fitting[:count]) if len(fitting) >= count else None


def _of_type(need: Need, room: Room) -> list[str]:
    free = [device for device in room.node.devices if device.uuid in room.devices and device.memory >= need.gpu_memory]
    return [device.uuid for device in free if not need.gpu_type or device.type in need.gpu_type]


def _explain(tasks: Sequence[Task], stuck: Task, rooms: Sequence[Room], trial: Sequence[Room]) -> Hold:
    need = stuck.need
    best = max(rooms, key=lambda room: (len(_of_type(need, room)), room.cpu), default=None)
    if best is None:
        return Hold("nodes", "there is no node to run on")
    left = max(trial, key=lambda room: (len(_of_type(need, room)), room.cpu))
    gang = f"{len(tasks)} tasks together" if len(tasks) > 1 else "1 task"
    if need.gpu and len(_of_type(need, left)) < need.gpu:
        total = sum(int(task.need.gpu) for task in tasks)
        kind = f" of type {' or '.join(need.gpu_type)}" if need.gpu_type else ""
        free = len(_of_type(need, best))
        busy = [f"GPU {device.index}: {device.busy_with}" for device in best.node.devices if device.busy_with]
        others = f" ({'; '.join(busy)})" if busy else ""
        return Hold("gpu", f"needs {total} GPUs{kind} for {gang}; {free} are free{others}", "a job with GPUs must end first")
    if need.cpu > left.cpu + _SLACK:
        total_cpu = quantity.show_number(round(sum(task.need.cpu for task in tasks), 3))
        free_cpu = quantity.show_number(round(max(0.0, best.cpu), 3))
        message = f"needs {total_cpu} CPUs for {gang}; {free_cpu} of {best.node.cpu:g} are free"
        return Hold("cpu", message, "another job must end first")
    if need.memory > left.memory:
        total_memory = quantity.show_bytes(sum(task.need.memory for task in tasks))
        free_memory = quantity.show_bytes(max(0, best.memory))
        return Hold("memory", f"needs {total_memory} of memory for {gang}; {free_memory} are free", "another job must end first")
    for name, count in need.other.items():
        if left.other.get(name, 0) < count:
            return Hold(name, f"needs {count} of {name}; {max(0, best.other.get(name, 0))} are free")
    return Hold("placement", f"no node satisfies the placement of {stuck.key.task}")
