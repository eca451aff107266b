"""Cached numbers of tasks of a shape that would fit on each node, updated for the nodes that changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.cluster.node_table import NodeTable
from fairway.plan.scheduling.cluster.scheduler_node import SchedulerNode
from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.score_input import Flags

Counts = NDArray[np.int64]

MOST_SHAPES = 512
"""Maximum number of shapes with cached counts."""
MANY = 12
"""From this number of changed nodes on, counting them as arrays is faster."""


class _CachedCounts:
    """The counts of a shape, valid up to position `at` of the change log."""

    __slots__ = ("admitted", "at", "counts", "needs", "total")

    def __init__(self, counts: Counts, admitted: Flags | None, at: int) -> None:
        if admitted is not None:
            counts[~admitted] = 0
        self.counts = counts
        self.admitted = admitted
        """Nodes that the shape allows; None: all."""
        self.needs: dict[int, list[int]] = {}
        """What a task takes of each device, by node model."""
        self.total = int(counts.sum())
        self.at = at


class FitCounts:
    """Counts of tasks that would fit, by shape and node."""

    def __init__(
        self, machines: Sequence[SchedulerNode], tables: NodeTable, admitted: Callable[[TaskShape], Flags | None]
    ) -> None:
        """`admitted` returns the nodes that a shape allows (None: all); its results must not change."""
        self._machines = machines
        self._tables = tables
        self._admitted = admitted
        self._changed: list[int] = []
        self._kept: dict[TaskShape, _CachedCounts] = {}

    def touch(self, at: int) -> None:
        """Note that something changed on this node."""
        self._changed.append(at)
        if len(self._changed) > 4 * len(self._machines) + 1000:
            self._changed.clear()
            self._kept.clear()

    def total(self, shape: TaskShape) -> int:
        """Return how many tasks would fit on all nodes together."""
        return self._fresh(shape).total

    def counts(self, shape: TaskShape) -> Counts:
        """Return how many tasks would fit on each node. A view; must not be modified."""
        return self._fresh(shape).counts

    def _fresh(self, shape: TaskShape) -> _CachedCounts:
        kept = self._kept.get(shape)
        if kept is None:
            if len(self._kept) >= MOST_SHAPES:
                self._kept.clear()
            kept = self._kept[shape] = _CachedCounts(self._tables.count(shape), self._admitted(shape), len(self._changed))
        elif kept.at < len(self._changed):
            changed = set(self._changed[kept.at :])
            if len(changed) < MANY:
                self._count(kept, shape, changed)
            else:
                self._count_at_once(kept, shape, np.array(list(changed), np.intp))
            kept.at = len(self._changed)
        return kept

    def _count(self, kept: _CachedCounts, shape: TaskShape, changed: set[int]) -> None:
        for at in changed:
            machine = self._machines[at]
            count = 0
            if kept.admitted is None or kept.admitted[at]:
                count = machine.count(shape, None if shape.where.devices else self._needs(kept, shape, machine))
            kept.total += count - int(kept.counts[at])
            kept.counts[at] = count

    def _needs(self, kept: _CachedCounts, shape: TaskShape, machine: SchedulerNode) -> list[int]:
        needs = kept.needs.get(machine.number)
        if needs is None:
            needs = kept.needs[machine.number] = machine.needs(shape)
        return needs

    def _count_at_once(self, kept: _CachedCounts, shape: TaskShape, changed: NDArray[np.intp]) -> None:
        counts = self._tables.count(shape, changed)
        if kept.admitted is not None:
            counts[~kept.admitted[changed]] = 0
        kept.total += int(counts.sum() - kept.counts[changed].sum())
        kept.counts[changed] = counts
