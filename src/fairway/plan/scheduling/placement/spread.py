"""Spread: the emptiest node, and the emptiest device on it."""

from __future__ import annotations

import numpy as np

from fairway.plan.scheduling.gang import WHOLE
from fairway.plan.scheduling.placement.placement_policy import ScoreColumn, ScoreOnlyPolicy, masked
from fairway.plan.scheduling.score_input import NodeScoreState, ScoreRows

SCALE = 10_000


class SpreadPolicy(ScoreOnlyPolicy):
    """Compares the free fraction of GPUs first, then of cores; only of cores for tasks without GPUs."""

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Score nodes by the free capacity, more is better."""
        cpu = SCALE * state.cpu // max(1, state.model.cpu)
        gpu = SCALE * sum(state.free) // max(1, WHOLE * len(state.free))
        scores = np.where(specs.gpus > 0, gpu * SCALE + cpu, cpu)
        most = np.full(len(specs.rows), -1)
        picks = np.zeros(len(specs.rows), np.int32)
        for slot, (kind, free) in enumerate(zip(state.model.kinds, state.free, strict=True)):
            better = (specs.need(kind) <= free) & (free > most)
            most[better], picks[better] = free, slot
        return ScoreColumn(masked(scores, specs.fit(state)), picks)
