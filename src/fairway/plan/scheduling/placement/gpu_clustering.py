"""GPU clustering: place tasks of one kind (shares, 1 GPU, 2 GPUs ...) next to others of the kind (after Gandiva)."""

from __future__ import annotations

import numpy as np

from fairway.plan.scheduling.placement.placement_policy import ScoreColumn, ScoreOnlyPolicy, masked
from fairway.plan.scheduling.score_input import NodeScoreState, ScoreRows

MOST_GPU = 8_000
"""The largest node of the published experiment; it only sets the scale."""


class GpuClusteringPolicy(ScoreOnlyPolicy):
    """As published with the FGD experiment: by class of node, then the fuller node."""

    tagged = True

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Score 75 with tasks of its kind only, 50 with its kind and others, 25 on an idle node, 0 with others; plus fullness."""
        fullness = 25 * max(0, MOST_GPU - sum(state.free)) // MOST_GPU
        classes = [self._class(tag, state.tags) + fullness if tag else 0 for tag in specs.tags]
        return ScoreColumn(masked(np.array(classes, np.int64), specs.fit(state)))

    def _class(self, tag: str, tags: frozenset[str]) -> int:
        if tag in tags:
            return 75 if len(tags) == 1 else 50
        return 0 if tags else 25
