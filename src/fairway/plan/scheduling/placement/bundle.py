"""Bundle: keep large idle nodes whole. Nodes in use come first, then the node with the least capacity left."""

from __future__ import annotations

import numpy as np

from fairway.plan.scheduling.gang import WHOLE
from fairway.plan.scheduling.placement.placement_policy import ScoreColumn, ScoreOnlyPolicy, masked
from fairway.plan.scheduling.score_input import NodeScoreState, ScoreRows

IN_USE = 1_000_000_000
GPU = 10_000
MOST_LEFT = 90_000


class BundlePolicy(ScoreOnlyPolicy):
    """Compares use of the node first, then free GPUs, then free cores (in tenths)."""

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Score nodes by the remaining capacity, less is better; idle nodes come last."""
        in_use = state.cpu < state.model.cpu or any(free < WHOLE for free in state.free)
        gpu = np.minimum(sum(state.free) - specs.asked, MOST_LEFT)
        cpu = np.minimum((state.cpu - specs.cpu) // 100, GPU - 1)
        return ScoreColumn(masked(in_use * IN_USE - gpu * GPU - cpu, specs.fit(state)))
