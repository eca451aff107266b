"""GPU packing: first onto GPUs that are shared already, then onto idle GPUs of nodes in use, last onto idle nodes."""

from __future__ import annotations

import numpy as np

from fairway.plan.scheduling.gang import WHOLE
from fairway.plan.scheduling.placement.placement_policy import ScoreColumn, ScoreOnlyPolicy, masked
from fairway.plan.scheduling.score_input import NodeScoreState, ScoreRows

SHARED, USED, IDLE = 100, 50, 33
"""Maximum scores of a shared GPU, of an idle GPU on a node in use, and of an idle node."""


class GpuPackingPolicy(ScoreOnlyPolicy):
    """As published with the FGD experiment."""

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Score by the class of the place, less the idle GPUs that it would break."""
        idle = state.free.count(WHOLE)
        if idle == len(state.free):
            scores = np.full(len(specs.rows), max(IDLE - idle, idle), np.int64)
        else:
            scores = self._on_used_node(specs, state)
        scores[specs.gpus == 0] = 0
        return ScoreColumn(masked(scores, specs.fit(state)))

    def _on_used_node(self, specs: ScoreRows, state: NodeScoreState) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        missing = specs.gpus.copy()
        broken = np.zeros_like(missing)
        spare = np.zeros_like(missing)
        for free, kind in sorted(zip(state.free, state.model.kinds, strict=True)):
            goes = (specs.need(kind) <= free) & (missing > 0)
            missing -= goes
            broken += goes & (free == WHOLE)
            spare += goes * (free * 100 // WHOLE)
        return np.where(broken > 0, np.maximum(USED - broken, IDLE), np.maximum(SHARED - spare // 10, USED))
