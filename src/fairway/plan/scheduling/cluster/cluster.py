"""The cluster as seen by the scheduler: free resources, and placement of gangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fairway.plan.scheduling.cluster import gang_placement as gangs
from fairway.plan.scheduling.cluster import shortfall
from fairway.plan.scheduling.cluster.node_pool import NodePool
from fairway.plan.scheduling.gang import WHOLE, CapacityShortfall, GangShape, TaskSeat, TaskShape
from fairway.plan.scheduling.score_input import NOWHERE
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.state.node import ClusterNode


class ClusterModel:
    """Free resources and placement. Deterministic; every change can be undone.

    Results depend only on the state, not on how it came about: a cluster rebuilt from its nodes and the seats taken, with the
    same mix, gives the same answers. Devices that are unhealthy, or in foreign use, are not free.
    """

    def __init__(
        self,
        nodes: Iterable[ClusterNode] = (),
        policy: str = "fairway",
        mix: WorkloadMix | None = None,
        ranks: Mapping[str, int] | None = None,
    ) -> None:
        """`ranks`: ties go to the node with the smallest rank; without it, to the first by name."""
        self._floor = NodePool(nodes, policy, mix or WorkloadMix(), ranks)
        self._idle: tuple[int, ClusterModel] | None = None

    def put_node(self, node: ClusterNode) -> None:
        """Add a node or change its capacity, health or labels; what is taken on it stays taken."""
        self._floor.put(node)

    def drop_node(self, name: str) -> None:
        """Remove a node together with what was taken on it."""
        self._floor.drop(name)

    def node(self, name: str) -> ClusterNode:
        """Return the node of that name."""
        return self._floor.node(name)

    def names(self) -> list[str]:
        """Return the names of all nodes, in order of rank."""
        self._floor.arrange()
        return [machine.node.name for machine in self._floor.machines]

    def place(
        self, gang: GangShape, sizes: Mapping[str, int] | None = None, running: Sequence[TaskSeat] = ()
    ) -> tuple[TaskSeat, ...] | CapacityShortfall:
        """Take and return seats for every task that has none; or return why not, with nothing changed.

        `sizes` is the number of tasks of each role (default: `least`), with indexes from 0. The tasks of `running` have seats
        already and count for `together`, `apart` and the rack.
        """
        self._floor.arrange()
        result = gangs.place(self._floor, gang, sizes, running)
        if isinstance(result, list):
            return tuple(result)
        already_placed = sum(seat.role == result.part.role for seat in running)
        size = (sizes or {}).get(result.part.role, result.part.least)
        return shortfall.explain(self._floor, result, max(1, size - already_placed))

    def try_place(
        self, gang: GangShape, sizes: Mapping[str, int] | None = None, running: Sequence[TaskSeat] = ()
    ) -> tuple[TaskSeat, ...] | None:
        """Like `place`, but return None instead of a reason."""
        self._floor.arrange()
        result = gangs.place(self._floor, gang, sizes, running)
        return tuple(result) if isinstance(result, list) else None

    def take(self, seats: Iterable[TaskSeat]) -> None:
        """Take exactly these seats, even beyond the capacity: then nothing is free until they are given back."""
        for seat in seats:
            self._floor.change(seat, 1)

    def give(self, seats: Iterable[TaskSeat]) -> None:
        """Free these seats; seats on unknown nodes are ignored."""
        for seat in seats:
            self._floor.change(seat, -1)

    def mark(self) -> int:
        """Return a point to which `undo` can return. Marks nest; changes are logged until `keep`."""
        self._floor.logging = True
        return len(self._floor.log)

    def undo(self, mark: int) -> None:
        """Restore the exact state at the mark, in time proportional to the changes. Marks nest, also at the same point."""
        self._floor.undo(mark)

    def keep(self) -> None:
        """Keep all changes and invalidate all marks; logging starts again at the next mark."""
        self._floor.log.clear()
        self._floor.logging = False

    def room(self, shape: TaskShape) -> int:
        """Return how many tasks of the shape would fit now."""
        self._floor.arrange()
        return self._floor.room(shape)

    def ever(self, gang: GangShape) -> CapacityShortfall | None:
        """Return why the gang could not start even if all devices were unused; None when it could."""
        if self._idle is None or self._idle[0] != self._floor.renewed:
            self._floor.arrange()
            nodes = [_unused(machine.node) for machine in self._floor.machines]
            self._idle = (self._floor.renewed, ClusterModel(nodes, "best-fit"))
        return self._idle[1].shortfall(gang)

    def shortfall(self, gang: GangShape) -> CapacityShortfall | None:
        """Return why the gang cannot start now; None when it fits. Changes nothing."""
        logging, self._floor.logging = self._floor.logging, True
        mark = len(self._floor.log)
        result = self.place(gang)
        self._floor.undo(mark)
        self._floor.logging = logging
        return result if isinstance(result, CapacityShortfall) else None

    def free_gpus(self, shape: TaskShape | None = None) -> tuple[int, int]:
        """Return the total free thousandths and the number of idle devices, on nodes and device types that the shape allows."""
        self._floor.arrange()
        free = self._floor.tables.devices()
        if shape is not None:
            free = np.where(self._floor.tables.needs(shape) < NOWHERE, free, 0)
            admitted = self._floor.admitted(shape)
            free = free if admitted is None else free[admitted]
        return int(free.sum()), int((free == WHOLE).sum())

    def learn(self, mix: WorkloadMix) -> None:
        """Set another workload mix; all scores are recomputed."""
        self._floor.learn(mix)


def _unused(node: ClusterNode) -> ClusterNode:
    if not any(device.busy_with for device in node.devices):
        return node
    return replace(node, devices=tuple(replace(device, busy_with="") for device in node.devices))
