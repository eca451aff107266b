"""Best fit: the node with the least capacity left, with equal weight of cores and GPUs."""

from __future__ import annotations

import numpy as np

from fairway.plan.scheduling.placement.policy import Column, Scored, masked
from fairway.plan.scheduling.placement.specs import Specs, State

MOST_CPU, MOST_GPU = 128_000.0, 8_000.0
"""The largest node of the published experiment; they only set the scale."""


class BestFit(Scored):
    """As published with the FGD experiment: scores in whole percents."""

    def column(self, specs: Specs, state: State) -> Column:
        """Score nodes by the remaining capacity, inverted."""
        cpu = (state.cpu - specs.cpu) / MOST_CPU * 0.5
        gpu = (sum(state.free) - specs.asked) / MOST_GPU * 0.5
        scores = ((1.0 - (cpu + gpu)) * 100.0).astype(np.int64)
        return Column(masked(scores, specs.fit(state)))
