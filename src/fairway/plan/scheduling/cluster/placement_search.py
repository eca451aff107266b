"""Bounded search for places of a gang of several shapes, for when placing one task after another has failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairway.plan.scheduling.cluster.node_pool import NodePool, Positions
from fairway.plan.scheduling.gang import GangRole, TaskSeat, TaskShape

PATIENCE = 4000
"""Maximum number of node visits before the search gives up. For a handful of nodes that makes it exhaustive."""

Task = tuple[GangRole, int, tuple[int, ...]]


def place(
    floor: NodePool, wanted: Sequence[tuple[GangRole, Sequence[int], tuple[int, ...]]], within: Positions | None
) -> list[TaskSeat] | None:
    """Take and return seats for all tasks; None, with nothing changed, when the search fails. The floor's log must be on."""
    tasks = [(part, index, used) for part, indexes, used in wanted for index in indexes]
    nodes = range(len(floor.machines)) if within is None else [int(at) for at in within]
    return _PlacementSearch(floor, tasks, nodes).run()


class _PlacementSearch:
    """Depth-first search. Of nodes in equal states only the first is tried, and equal tasks go to nodes in ascending order."""

    def __init__(self, floor: NodePool, tasks: Sequence[Task], nodes: Sequence[int]) -> None:
        self._floor = floor
        self._tasks = tasks
        self._nodes = nodes
        self._left = PATIENCE
        self._seats: list[TaskSeat] = []
        self._at: list[int] = []

    def run(self) -> list[TaskSeat] | None:
        return self._seats if self._extend() else None

    def _extend(self) -> bool:
        number = len(self._seats)
        if number == len(self._tasks):
            return True
        part, index, _ = self._tasks[number]
        for at, positions in self._ways(number):
            mark = len(self._floor.log)
            seat = self._floor.machines[at].seat(part.role, index, part.shape, positions)
            self._floor.change(seat, 1)
            self._seats.append(seat)
            self._at.append(at)
            if self._extend():
                return True
            self._floor.undo(mark)
            self._seats.pop()
            self._at.pop()
        return False

    def _ways(self, number: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        part, _, used = self._tasks[number]
        peers = [at for at, task in zip(self._at, self._tasks, strict=False) if task[0] is part]
        tried_keys: set[object] = set()
        for at in self._nodes:
            machine = self._floor.machines[at]
            if (peers and at < peers[-1]) or not _allowed(part, at, {*used, *peers}):
                continue
            self._left -= 1
            if self._left < 0:
                return
            # Named devices, labels and other resources distinguish nodes in ways that the state does not contain.
            key = (
                at
                if part.apart or part.together
                else (machine.state(), machine.memory, machine.taken, machine.node.name if _special(part.shape) else "")
            )
            if key in tried_keys or not machine.fits(part.shape):
                continue
            tried_keys.add(key)
            for positions in _choices(machine.free, machine.needs(part.shape), part.shape, machine.devices(part.shape)):
                yield at, positions


def _allowed(part: GangRole, at: int, taken: set[int]) -> bool:
    if part.apart and at in taken:
        return False
    return not part.together or not taken or at in taken


def _special(shape: TaskShape) -> bool:
    return bool(shape.other or shape.where.devices or shape.where.nodes or shape.where.labels)


def _choices(
    free: Sequence[int], needs: Sequence[int], shape: TaskShape, usual: tuple[int, ...] | None
) -> Iterator[tuple[int, ...]]:
    """Yield devices worth trying: for a single share one device of each free amount; else the usual and the emptiest ones."""
    if not shape.shares:
        yield usual or ()
        return
    fitting = [at for at, need in enumerate(needs) if need <= free[at]]
    if shape.gpus > 1:
        yield usual or ()
        yield tuple(sorted(sorted(fitting, key=lambda at: -free[at])[: shape.gpus]))
        return
    for free_amount in sorted({free[at] for at in fitting}):
        yield (next(at for at in fitting if free[at] == free_amount),)
