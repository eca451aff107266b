"""Compute why a gang does not fit, in numbers."""

from __future__ import annotations

import numpy as np

from fairway.plan.scheduling.cluster.gang_placement import FailedPlacement
from fairway.plan.scheduling.cluster.node_pool import NodePool
from fairway.plan.scheduling.cluster.node_table import Wholes
from fairway.plan.scheduling.gang import WHOLE, CapacityShortfall, TaskShape
from fairway.plan.scheduling.score_input import NOWHERE, Flags


def explain(floor: NodePool, stuck: FailedPlacement, size: int) -> CapacityShortfall:
    """Return the binding constraint with current numbers. `size` is the number of the part's tasks that need a seat."""
    part, shape = stuck.part, stuck.part.shape
    if not floor.machines:
        return CapacityShortfall("nodes", part.role)
    admitted = floor.admitted(shape)
    allowed = np.ones(len(floor.machines), np.bool_) if admitted is None else admitted
    no_named_device = shape.where.devices and not (floor.tables.needs(shape)[allowed] < NOWHERE).any()
    if no_named_device or not allowed.any():
        return CapacityShortfall("placement", part.role, placed=stuck.placed)
    if stuck.rule in ("apart", "rack"):
        return CapacityShortfall("rack" if stuck.rule == "rack" else "placement", part.role, placed=stuck.placed)
    task_count = size if part.together else 1
    what = _binding(floor, shape, allowed, task_count)
    free = _free(floor, what, shape)[allowed]
    return CapacityShortfall(
        what,
        part.role,
        asked=_asked(what, shape) * task_count,
        most_on_a_node=int(free.max()),
        free=int(free.sum()),
        placed=stuck.placed,
        total=int(_total(floor, what, shape)[allowed].sum()),
    )


def _binding(floor: NodePool, shape: TaskShape, ok: Flags, times: int) -> str:
    """Return the resource that no node has enough of for `times` tasks; else one whose lack alone excludes some node.

    When single tasks would fit but not this number of them: the resource that is exhausted first.
    """
    names = [name for name in ("gpu", "cpu", "memory", *dict(shape.other)) if _asked(name, shape)] + ["tasks"]
    counts = np.array([_count(floor, name, shape)[ok] for name in names])
    enough = counts >= times
    if enough.all(axis=0).any():
        return names[int(counts.sum(axis=1).argmin())]
    for name, nodes in zip(names, enough, strict=True):
        if not nodes.any():
            return name
    lacking = len(names) - enough.sum(axis=0)
    for name, nodes in zip(names, enough, strict=True):
        if (~nodes & (lacking == 1)).any():
            return name
    return names[0]


def _count(floor: NodePool, what: str, shape: TaskShape) -> Wholes:
    """Return how many tasks each node has enough of the resource for."""
    if what == "gpu":
        return floor.tables.count_gpus(shape)
    return floor.tables.free(what) // _asked(what, shape)


def _asked(what: str, shape: TaskShape) -> int:
    amounts = {"gpu": shape.gpus * shape.gpu_milli, "cpu": shape.cpu, "memory": shape.memory, "tasks": 1}
    return amounts[what] if what in amounts else dict(shape.other)[what]


def _free(floor: NodePool, what: str, shape: TaskShape) -> Wholes:
    """Return the free amounts. For GPUs only allowed devices count, and for whole GPUs only idle ones."""
    if what != "gpu":
        return floor.tables.free(what)
    devices = floor.tables.devices()
    usable = floor.tables.needs(shape) < NOWHERE
    if not shape.shares:
        usable = usable & (devices == WHOLE)
    free: Wholes = np.where(usable, devices, 0).sum(axis=1)
    return free


def _total(floor: NodePool, what: str, shape: TaskShape) -> Wholes:
    if what != "gpu":
        return floor.tables.total(what)
    total: Wholes = ((floor.tables.needs(shape) < NOWHERE) & floor.tables.sound()).sum(axis=1) * WHOLE
    return total
