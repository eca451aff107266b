"""One node: what is taken, what is free, and which devices a task would get."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.plan.scheduling.cluster import device_link
from fairway.plan.scheduling.gang import ANYWHERE, WHOLE, TaskSeat, TaskShape, device_memory
from fairway.plan.scheduling.score_input import NOWHERE, DeviceKind, NodeModel, NodeScoreState, need_on, tag_of
from fairway.state.node import ClusterNode, NodeDevice

ANY_NUMBER = 1 << 30
"""Stands for an unlimited number of tasks."""


class SchedulerNode:
    """A node's capacity and what is taken. Over-commitment is tracked exactly, and counts as nothing free."""

    __slots__ = (
        "_capacity",
        "_held",
        "_needs",
        "_other",
        "_slots",
        "cpu",
        "free",
        "load",
        "memory",
        "model",
        "node",
        "number",
        "tags",
        "taken",
        "tasks",
    )

    def __init__(self, node: ClusterNode, model: NodeModel, number: int) -> None:
        self.node = node
        self.model = model
        self.number = number
        """Equal models have equal numbers."""
        self.taken = 0
        """Number of tasks on the node."""
        self.load = 0
        """A checksum of what is taken, independent of the order."""
        self.tags: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._other: dict[str, int] = {}
        self.cpu, self.memory = round(node.cpu * 1000), node.memory >> 20
        """Free amounts; negative when over-committed."""
        self._furnish(node)

    def _furnish(self, node: ClusterNode) -> None:
        self._slots = {device.uuid: at for at, device in enumerate(node.devices)}
        self._capacity = [WHOLE if device.healthy and not device.busy_with else 0 for device in node.devices]
        self.free = [self._left(at) for at in range(len(node.devices))]
        self.tasks = node.tasks or ANY_NUMBER
        self._needs: dict[TaskShape, list[int]] = {}

    def changed(self, node: ClusterNode, model: NodeModel, number: int) -> SchedulerNode:
        """Return a machine with another capacity and the same seats taken."""
        other = SchedulerNode(node, model, number)
        other.load = self.load
        other.taken, other.tags, other._held, other._other = self.taken, dict(self.tags), dict(self._held), dict(self._other)
        other.cpu += self.cpu - round(self.node.cpu * 1000)
        other.memory += self.memory - (self.node.memory >> 20)
        other._furnish(node)
        return other

    def _left(self, at: int) -> int:
        used = self._held.get(self.node.devices[at].uuid, 0)
        return max(0, min(self._capacity[at], self._capacity[at] - used))

    def change(self, seat: TaskSeat, sign: int) -> None:
        """Take a seat (1) or free it (-1)."""
        shape = seat.shape
        self.cpu -= sign * shape.cpu
        self.memory -= sign * shape.memory
        self.taken += sign
        self.load += sign * (shape.cpu + 7 * shape.gpus * seat.milli + 1)
        for name, count in shape.other:
            self._other[name] = self._other.get(name, 0) + sign * count
        if not shape.gpus:
            return
        _count(self.tags, tag_of(shape), sign)
        for uuid in seat.devices:
            _count(self._held, uuid, sign * seat.milli)
            at = self._slots.get(uuid)
            if at is not None:
                self.free[at] = self._left(at)

    def state(self) -> NodeScoreState:
        """Return the state that the policies use."""
        return NodeScoreState(self.model, max(0, self.cpu), tuple(self.free), frozenset(self.tags))

    def needs(self, shape: TaskShape) -> list[int]:
        """Return the thousandths of each device that a task would take; `NOWHERE` where it is not allowed."""
        milli = self._needs.get(shape)
        if milli is None:
            milli = [need_on(shape, kind) for kind in self.model.kinds]
            allowed_devices = shape.where.devices
            if allowed_devices:
                allowed = [device.uuid in allowed_devices or str(device.index) in allowed_devices for device in self.node.devices]
                milli = [need if ok else NOWHERE for need, ok in zip(milli, allowed, strict=True)]
            if len(self._needs) > 256:
                self._needs.clear()
            self._needs[shape] = milli
        return milli

    def admits(self, shape: TaskShape) -> bool:
        """Return whether the shape allows the node by name, labels and taints."""
        where, node = shape.where, self.node
        if where is ANYWHERE and not node.taints:
            return True
        if where.nodes and node.name not in where.nodes:
            return False
        if any(node.labels.get(name) != value for name, value in where.labels):
            return False
        return not node.taints or "*" in where.tolerates or all(taint in where.tolerates for taint in node.taints)

    def other_left(self, name: str) -> int:
        """Return the free amount of another resource."""
        return max(0, self.node.other.get(name, 0) - self._other.get(name, 0))

    def holds(self, shape: TaskShape) -> bool:
        """Return whether one more task fits now, without regard to cores and devices."""
        if shape.memory > max(0, self.memory) or self.taken >= self.tasks:
            return False
        return all(self.other_left(name) >= count for name, count in shape.other)

    def count(self, shape: TaskShape, needs: Sequence[int] | None = None) -> int:
        """Return how many tasks of the shape would fit now if the node is allowed; `needs` may be passed to save computing it."""
        if self.taken >= self.tasks:
            return 0
        most = self.tasks - self.taken
        for free, need in ((self.cpu, shape.cpu), (self.memory, shape.memory)):
            if need:
                most = min(most, max(0, free) // need)
        for name, need in shape.other:
            if need:
                most = min(most, self.other_left(name) // need)
        if not (shape.gpus and most):
            return most
        return min(most, count_on_devices(self.free, needs if needs is not None else self.needs(shape), shape.gpus))

    def fits(self, shape: TaskShape) -> bool:
        """Return whether one more task fits now, in every respect."""
        return self.holds(shape) and shape.cpu <= max(0, self.cpu) and self.devices(shape) is not None and self.admits(shape)

    def devices(self, shape: TaskShape, pick: int | None = None) -> tuple[int, ...] | None:
        """Return the positions of the devices that a task would get; None when there are too few.

        A single share goes to `pick`, if given, else to the fullest device where it fits; several shares go to the fullest
        devices; whole devices are chosen by their links.
        """
        if not shape.gpus:
            return ()
        if pick is not None:
            return (pick,)
        free, needs = self.free, self.needs(shape)
        fitting = [at for at, need in enumerate(needs) if need <= free[at]]
        if len(fitting) < shape.gpus:
            return None
        if not shape.shares:
            return device_link.closest(self.node.devices, fitting, shape.gpus)
        fitting.sort(key=free.__getitem__)
        return tuple(sorted(fitting[: shape.gpus]))

    def seat(self, role: str, index: int, shape: TaskShape, positions: tuple[int, ...]) -> TaskSeat:
        """Return the seat on these devices."""
        if not positions:
            return TaskSeat(role, index, shape, self.node.name)
        needs, devices = self.needs(shape), self.node.devices
        milli = needs[positions[0]] if len(positions) == 1 else max(needs[at] for at in positions)
        return TaskSeat(role, index, shape, self.node.name, tuple(devices[at].uuid for at in positions), milli)


def model_of(node: ClusterNode) -> NodeModel:
    """Return the node's model: its device kinds and cores."""
    return NodeModel(tuple(kind_of(device) for device in node.devices), round(node.cpu * 1000))


def kind_of(device: NodeDevice) -> DeviceKind:
    """Return the device's kind: its type and memory."""
    return DeviceKind(device.type, device_memory(device))


def count_on_devices(free: Sequence[int], needs: Sequence[int], gpus: int) -> int:
    """Return how many tasks fit that each take their need of `gpus` different devices.

    t tasks fit exactly if the devices together can hold t x gpus pieces, at most t of them on one device.
    """
    room = [free_milli // need for free_milli, need in zip(free, needs, strict=True) if need <= free_milli] if gpus else []
    most = sum(room) // gpus
    while most and sum(min(pieces, most) for pieces in room) < most * gpus:
        most = sum(min(pieces, most) for pieces in room) // gpus
    return most


def _count(counts: dict[str, int], name: str, change: int) -> None:
    remaining = counts.get(name, 0) + change
    if remaining:
        counts[name] = remaining
    else:
        counts.pop(name, None)
