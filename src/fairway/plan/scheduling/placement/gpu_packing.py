"""GPU packing: first onto GPUs that are shared already, then onto idle GPUs of nodes in use, last onto idle nodes."""

from __future__ import annotations

import numpy as np

from fairway.plan.scheduling.placement.policy import Column, Scored, masked
from fairway.plan.scheduling.placement.specs import Specs, State
from fairway.plan.scheduling.shape import WHOLE

SHARED, USED, IDLE = 100, 50, 33
"""The most a shared GPU, an idle GPU of a node in use, and an idle node are worth."""


class GpuPacking(Scored):
    """As published with the FGD experiment."""

    def column(self, specs: Specs, state: State) -> Column:
        """The rank of the class of place, less what it would break."""
        idle = state.free.count(WHOLE)
        if idle == len(state.free):
            scores = np.full(len(specs.rows), max(IDLE - idle, idle), np.int64)
        else:
            scores = self._on_used_node(specs, state)
        scores[specs.gpus == 0] = 0
        return Column(masked(scores, specs.fit(state)))

    def _on_used_node(self, specs: Specs, state: State) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        wanted = specs.gpus.copy()
        broken = np.zeros_like(wanted)
        spare = np.zeros_like(wanted)
        for free, kind in sorted(zip(state.free, state.model.kinds, strict=True)):
            goes = (specs.need(kind) <= free) & (wanted > 0)
            wanted -= goes
            broken += goes & (free == WHOLE)
            spare += goes * (free * 100 // WHOLE)
        return np.where(broken > 0, np.maximum(USED - broken, IDLE), np.maximum(SHARED - spare // 10, USED))
