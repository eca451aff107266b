"""How many tasks of a shape would fit on each node, kept up to date where something changed since one last asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.cluster.machine import Machine
from fairway.plan.scheduling.cluster.tables import Tables
from fairway.plan.scheduling.placement.specs import Flags
from fairway.plan.scheduling.shape import Shape

Counts = NDArray[np.int64]

MOST_SHAPES = 512
"""Shapes whose counts are kept."""
MANY = 12
"""From so many changed nodes on it is faster to count all of them at once."""


class _Kept:
    """Counts as they were when the log of changes had some length."""

    __slots__ = ("at", "counts", "total")

    def __init__(self, counts: Counts, at: int) -> None:
        self.counts = counts
        self.total = int(counts.sum())
        self.at = at


class Rooms:
    """Counts by shape and node."""

    def __init__(self, machines: Sequence[Machine], tables: Tables) -> None:
        self._machines = machines
        self._tables = tables
        self._changed: list[int] = []
        self._kept: dict[Shape, _Kept] = {}

    def touch(self, at: int) -> None:
        """Something changed on this node."""
        self._changed.append(at)
        if len(self._changed) > 4 * len(self._machines) + 1000:
            self._changed.clear()
            self._kept.clear()

    def total(self, shape: Shape, admitted: Flags | None) -> int:
        """How many would fit on all nodes together; `admitted` says which will do (None: all of them)."""
        return self._fresh(shape, admitted).total

    def counts(self, shape: Shape, admitted: Flags | None) -> Counts:
        """How many would fit on each node. A view: not to be written to."""
        return self._fresh(shape, admitted).counts

    def _fresh(self, shape: Shape, admitted: Flags | None) -> _Kept:
        kept = self._kept.get(shape)
        if kept is None:
            if len(self._kept) >= MOST_SHAPES:
                self._kept.clear()
            counts = self._tables.count(shape)
            if admitted is not None:
                counts[~admitted] = 0
            kept = self._kept[shape] = _Kept(counts, len(self._changed))
        elif kept.at < len(self._changed):
            changed = set(self._changed[kept.at :])
            if len(changed) < MANY:
                for at in changed:
                    count = self._count(self._machines[at], shape)
                    kept.total += count - int(kept.counts[at])
                    kept.counts[at] = count
            else:
                self._recount(kept, shape, admitted, np.array(list(changed), np.intp))
            kept.at = len(self._changed)
        return kept

    def _recount(self, kept: _Kept, shape: Shape, admitted: Flags | None, changed: NDArray[np.intp]) -> None:
        counts = self._tables.count(shape, changed)
        if admitted is not None:
            counts[~admitted[changed]] = 0
        kept.total += int(counts.sum() - kept.counts[changed].sum())
        kept.counts[changed] = counts

    def _count(self, machine: Machine, shape: Shape) -> int:
        return machine.count(shape) if machine.admits(shape) else 0
