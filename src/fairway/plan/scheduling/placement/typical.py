"""The common tasks of a mix, as numbers to measure fragments with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.placement.mix import Mix
from fairway.plan.scheduling.placement.specs import NOWHERE, Kind, State, need_on, tally
from fairway.plan.scheduling.shape import Shape

Numbers = NDArray[np.float64]

POPULAR = 95.0
"""Percent of the tasks that the typical ones make up at least."""


class Typical:
    """The most popular kinds of tasks of a mix, with their shares of it."""

    def __init__(self, mix: Mix) -> None:
        total, covered = float(mix.total), 0.0
        shapes: list[Shape] = []
        shares: list[float] = []
        for shape, count in mix.counts:
            if covered >= POPULAR * total / 100.0:
                break
            covered += count
            shapes.append(shape)
            shares.append(count / total)
        if len(shapes) < len(mix.counts):
            shares = [share / (covered / total) for share in shares]
        self.shapes = shapes
        self.share: Numbers = np.array(shares)
        self.cpu: NDArray[np.int64] = np.array([shape.cpu for shape in shapes], np.int64)
        self.gpus: NDArray[np.int64] = np.array([shape.gpus for shape in shapes], np.int64)
        self._needs: dict[Kind, NDArray[np.int64]] = {}

    def need(self, kind: Kind) -> NDArray[np.int64]:
        """Thousandths that each takes of such a device; `NOWHERE` also for those that need no GPU."""
        found = self._needs.get(kind)
        if found is None:
            needs = [need_on(shape, kind) if shape.gpus else NOWHERE for shape in self.shapes]
            found = self._needs[kind] = np.array(needs, np.int64)
        return found

    def fragments(self, state: State) -> float:
        """Thousandths of GPUs on the node that a task drawn from the mix could not use, on the average."""
        hosts = np.zeros_like(self.gpus)
        usable = np.zeros_like(self.gpus)
        for (kind, free), times in tally(state).items():
            can = self.need(kind) <= free
            hosts += times * can
            usable += times * free * can
        served = (self.gpus > 0) & (hosts >= self.gpus) & (self.cpu <= state.cpu)
        return float(sum(state.free) - (self.share * usable)[served].sum())
