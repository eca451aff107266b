"""The cluster as the scheduler sees it: what is free, and where a task goes best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fairway.plan.scheduling.cluster import gang as gangs
from fairway.plan.scheduling.cluster import shortfall
from fairway.plan.scheduling.cluster.floor import Floor
from fairway.plan.scheduling.placement.mix import Mix
from fairway.plan.scheduling.placement.specs import NOWHERE
from fairway.plan.scheduling.shape import WHOLE, Gang, Seat, Shape, Shortfall
from fairway.state.node import Node


class Cluster:
    """What is free, and where a task goes best. Deterministic; every change can be undone.

    Equal histories give equal answers, and so does a cluster rebuilt from its nodes and the seats taken, with the same mix:
    the answer depends on the state, never on how it came about. Devices that are sick, or that others use, are not free.
    """

    def __init__(
        self, nodes: Iterable[Node] = (), policy: str = "fairway", mix: Mix | None = None, ranks: Mapping[str, int] | None = None
    ) -> None:
        """`ranks` says which node wins a tie, the smallest; without it they go by name."""
        self._floor = Floor(nodes, policy, mix or Mix(), ranks)
        self._idle: tuple[int, Cluster] | None = None

    def put_node(self, node: Node) -> None:
        """A new node, or another capacity, health or label; what is taken on it stays taken."""
        self._floor.put(node)

    def drop_node(self, name: str) -> None:
        """The node goes, with what was taken on it."""
        self._floor.drop(name)

    def node(self, name: str) -> Node:
        """The node of that name."""
        return self._floor.node(name)

    def names(self) -> list[str]:
        """All nodes, the one that wins ties first."""
        self._floor.arrange()
        return [machine.node.name for machine in self._floor.machines]

    def place(
        self, gang: Gang, sizes: Mapping[str, int] | None = None, running: Sequence[Seat] = ()
    ) -> tuple[Seat, ...] | Shortfall:
        """Seats for every task that has none, all taken; or why not, with nothing changed.

        `sizes` is the number of tasks of a role (default: `least`), counted from 0; those of `running` sit already, and count for
        `together`, `apart` and the rack.
        """
        self._floor.arrange()
        found = gangs.place(self._floor, gang, sizes, running)
        if isinstance(found, list):
            return tuple(found)
        sitting = sum(seat.role == found.part.role for seat in running)
        size = (sizes or {}).get(found.part.role, found.part.least)
        return shortfall.explain(self._floor, found, max(1, size - sitting))

    def try_place(
        self, gang: Gang, sizes: Mapping[str, int] | None = None, running: Sequence[Seat] = ()
    ) -> tuple[Seat, ...] | None:
        """As `place`, for those who do not ask why not."""
        self._floor.arrange()
        found = gangs.place(self._floor, gang, sizes, running)
        return tuple(found) if isinstance(found, list) else None

    def take(self, seats: Iterable[Seat]) -> None:
        """Exactly these, even if there is not that much: then nothing is free until it is given back."""
        for seat in seats:
            self._floor.change(seat, 1)

    def give(self, seats: Iterable[Seat]) -> None:
        """They are free again; seats on nodes that are gone are none of our business."""
        for seat in seats:
            self._floor.change(seat, -1)

    def mark(self) -> int:
        """A point to come back to with `undo`. Marks nest; changes are logged until `keep`."""
        self._floor.logging = True
        return len(self._floor.log)

    def undo(self, mark: int) -> None:
        """Back to the very state at the mark, in time proportional to what changed. Marks nest, also at the same point."""
        self._floor.undo(mark)

    def keep(self) -> None:
        """What changed stays, and all marks are void; the log begins anew at the next mark."""
        self._floor.log.clear()
        self._floor.logging = False

    def room(self, shape: Shape) -> int:
        """How many tasks of the shape would fit now, each alone."""
        self._floor.arrange()
        return self._floor.room(shape)

    def ever(self, gang: Gang) -> Shortfall | None:
        """Why it could not start even if nothing ran, whoever uses the devices now; None when it could."""
        if self._idle is None or self._idle[0] != self._floor.renewed:
            self._floor.arrange()
            nodes = [_unused(machine.node) for machine in self._floor.machines]
            self._idle = (self._floor.renewed, Cluster(nodes, "best-fit"))
        return self._idle[1].shortfall(gang)

    def shortfall(self, gang: Gang) -> Shortfall | None:
        """Why it cannot start now; None when it fits. Changes nothing."""
        logging, self._floor.logging = self._floor.logging, True
        mark = len(self._floor.log)
        found = self.place(gang)
        self._floor.undo(mark)
        self._floor.logging = logging
        return found if isinstance(found, Shortfall) else None

    def free_gpus(self, shape: Shape | None = None) -> tuple[int, int]:
        """Thousandths that are free in all, and devices that are idle; on nodes and types that will do for the shape."""
        self._floor.arrange()
        free = self._floor.tables.devices()
        if shape is not None:
            free = np.where(self._floor.tables.needs(shape) < NOWHERE, free, 0)
            admitted = self._floor.admitted(shape)
            free = free if admitted is None else free[admitted]
        return int(free.sum()), int((free == WHOLE).sum())

    def learn(self, mix: Mix) -> None:
        """Another workload mix: all scores are made anew."""
        self._floor.learn(mix)


def _unused(node: Node) -> Node:
    if not any(device.busy_with for device in node.devices):
        return node
    return replace(node, devices=tuple(replace(device, busy_with="") for device in node.devices))
