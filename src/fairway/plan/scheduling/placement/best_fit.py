"""Best fit: the node with the least capacity left, with equal weight of cores and GPUs."""

from __future__ import annotations

import numpy as np

from fairway.plan.scheduling.placement.placement_policy import ScoreColumn, ScoreOnlyPolicy, masked
from fairway.plan.scheduling.score_input import NodeScoreState, ScoreRows

MOST_CPU, MOST_GPU = 128_000.0, 8_000.0
"""The largest node of the published experiment; they only set the scale."""


class BestFitPolicy(ScoreOnlyPolicy):
    """As published with the FGD experiment: scores in whole percents."""

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Score nodes by the remaining capacity, inverted."""
        cpu = (state.cpu - specs.cpu) / MOST_CPU * 0.5
        gpu = (sum(state.free) - specs.asked) / MOST_GPU * 0.5
        scores = ((1.0 - (cpu + gpu)) * 100.0).astype(np.int64)
        return ScoreColumn(masked(scores, specs.fit(state)))
