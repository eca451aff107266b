"""Dot product: the node whose free cores and GPUs have the smallest dot product with the request (after Tetris)."""

from __future__ import annotations

import numpy as np

from fairway.plan.scheduling.placement.best_fit import MOST_CPU, MOST_GPU
from fairway.plan.scheduling.placement.placement_policy import ScoreColumn, ScoreOnlyPolicy, masked
from fairway.plan.scheduling.score_input import NodeScoreState, ScoreRows


class DotProductPolicy(ScoreOnlyPolicy):
    """As published with the FGD experiment: scores in whole percents."""

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Score nodes by the dot product, inverted."""
        cpu = (state.cpu / MOST_CPU) * (specs.cpu / MOST_CPU)
        gpu = (sum(state.free) / MOST_GPU) * (specs.asked / MOST_GPU)
        scores = (100.0 * (1.0 - (cpu + gpu) / 2.0)).astype(np.int64)
        return ScoreColumn(masked(scores, specs.fit(state)))
