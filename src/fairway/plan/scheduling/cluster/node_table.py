"""Free resources of all nodes as arrays, for vectorized queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.cluster.scheduler_node import ANY_NUMBER, SchedulerNode
from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.score_input import NOWHERE, DeviceKind, Flags, need_on

Wholes = NDArray[np.int64]
Some = slice | NDArray[np.intp]
"""Selection of nodes."""
ALL = slice(None)


class NodeTable:
    """Arrays with one row for each node, in order of rank; updated on demand."""

    def __init__(self, machines: Sequence[SchedulerNode]) -> None:
        self._machines = machines
        self._stale: set[int] = set(range(len(machines)))
        count, devices = len(machines), max((len(machine.node.devices) for machine in machines), default=0)
        self._cpu: Wholes = np.zeros(count, np.int64)
        self._memory: Wholes = np.zeros(count, np.int64)
        self._tasks: Wholes = np.zeros(count, np.int64)
        self._free: Wholes = np.zeros((count, devices), np.int64)
        self._sound: Flags = np.zeros((count, devices), np.bool_)
        self._kinds: dict[DeviceKind, int] = {}
        self._kind: Wholes = np.full((count, devices), -1, np.int64)
        for at, machine in enumerate(machines):
            for slot, kind in enumerate(machine.model.kinds):
                self._kind[at, slot] = self._kinds.setdefault(kind, len(self._kinds))

    def touch(self, at: int) -> None:
        """Note that something changed on this node."""
        self._stale.add(at)

    def refresh(self) -> None:
        """Update the rows of changed nodes."""
        for at in self._stale:
            machine = self._machines[at]
            self._cpu[at] = max(0, machine.cpu)
            self._memory[at] = max(0, machine.memory)
            self._tasks[at] = max(0, machine.tasks - machine.taken)
            self._free[at, : len(machine.free)] = machine.free
            self._sound[at, : len(machine.free)] = [device.healthy for device in machine.node.devices]
        self._stale.clear()

    def free(self, what: str, where: Some = ALL) -> Wholes:
        """Return the free amount of `cpu`, `memory`, `tasks` or another resource on these nodes."""
        self.refresh()
        arrays = {"cpu": self._cpu, "memory": self._memory, "tasks": self._tasks}
        if what in arrays:
            return arrays[what][where]
        return np.array([machine.other_left(what) for machine in self._machines], np.int64)[where]

    def total(self, what: str) -> Wholes:
        """Return the total amount on each node if nothing ran."""
        if what == "cpu":
            return np.array([machine.model.cpu for machine in self._machines], np.int64)
        if what == "memory":
            return np.array([machine.node.memory >> 20 for machine in self._machines], np.int64)
        if what == "tasks":
            return np.array([machine.tasks for machine in self._machines], np.int64)
        return np.array([machine.node.other.get(what, 0) for machine in self._machines], np.int64)

    def devices(self) -> Wholes:
        """Return the free thousandths of every device: a row for each node."""
        self.refresh()
        return self._free

    def sound(self) -> Flags:
        """Return which devices are healthy: a row for each node."""
        self.refresh()
        return self._sound

    def needs(self, shape: TaskShape, where: Some = ALL) -> Wholes:
        """Return the thousandths that a task takes of each device; `NOWHERE` where it is not allowed."""
        by_kind = np.array([*(need_on(shape, kind) for kind in self._kinds), NOWHERE], np.int64)
        if not shape.where.devices:
            result: Wholes = by_kind[self._kind[where]]
            return result
        needs: Wholes = by_kind[self._kind]
        for at, machine in enumerate(self._machines):
            needs[at, : len(machine.free)] = machine.needs(shape)
        return needs[where]

    def count(self, shape: TaskShape, where: Some = ALL) -> Wholes:
        """Return how many tasks of the shape would fit on each of these nodes, without checking that the node is allowed."""
        most = self.free("tasks", where).copy()
        for what, need in (("cpu", shape.cpu), ("memory", shape.memory), *shape.other):
            if need:
                most = np.minimum(most, self.free(what, where) // need)
        return np.minimum(most, self.count_gpus(shape, where))

    def count_gpus(self, shape: TaskShape, where: Some = ALL) -> Wholes:
        """Return how many tasks of the shape fit on the devices alone (see `machine.count_on_devices`)."""
        if not shape.gpus:
            return np.full(len(self._tasks[where]), ANY_NUMBER, np.int64)
        pieces = self.devices()[where] // self.needs(shape, where)
        most: Wholes = pieces.sum(axis=1) // shape.gpus
        while True:
            spread: Wholes = np.minimum(pieces, most[:, None]).sum(axis=1) // shape.gpus
            if (spread >= most).all():
                return most
            most = np.minimum(most, spread)
