"""The most frequent tasks of a mix, as arrays for measuring fragmentation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.score_input import NOWHERE, DeviceKind, NodeScoreState, need_on, tally
from fairway.plan.scheduling.workload_mix import WorkloadMix

Numbers = NDArray[np.float64]

POPULAR = 95.0
"""Minimum percentage of tasks that the typical ones cover."""


class TypicalTasks:
    """The most frequent kinds of tasks of a mix, with their shares of it."""

    def __init__(self, mix: WorkloadMix) -> None:
        total, covered = float(mix.total), 0.0
        shapes: list[TaskShape] = []
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
        self._needs: dict[DeviceKind, NDArray[np.int64]] = {}

    def need(self, kind: DeviceKind) -> NDArray[np.int64]:
        """Return the thousandths that each task takes of such a device; `NOWHERE` also for tasks without GPUs."""
        need_array = self._needs.get(kind)
        if need_array is None:
            needs = [need_on(shape, kind) if shape.gpus else NOWHERE for shape in self.shapes]
            need_array = self._needs[kind] = np.array(needs, np.int64)
        return need_array

    def fragments(self, state: NodeScoreState) -> float:
        """Return the average thousandths of GPUs on the node that a task drawn from the mix could not use."""
        hosts = np.zeros_like(self.gpus)
        usable = np.zeros_like(self.gpus)
        for (kind, free), times in tally(state).items():
            can = self.need(kind) <= free
            hosts += times * can
            usable += times * free * can
        served = (self.gpus > 0) & (hosts >= self.gpus) & (self.cpu <= state.cpu)
        return float(sum(state.free) - (self.share * usable)[served].sum())
