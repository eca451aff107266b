"""Random: any node that fits. The baseline for other policies."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from fairway.plan.scheduling.placement.placement_policy import NEVER, ScoreColumn, ScoreOnlyPolicy, masked
from fairway.plan.scheduling.score_input import Ints, NodeScoreState, ScoreRows

_SPREAD = 0x9E3779B97F4A7C15
_BITS = (1 << 64) - 1


class RandomPolicy(ScoreOnlyPolicy):
    """Equal seeds and equal states give equal choices."""

    ordered = True

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    @property
    def key(self) -> Hashable:
        """The seed."""
        return self._seed

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Give all nodes the same score; a share goes to a random device where it fits."""
        count = len(specs.rows)
        picks = np.zeros(count, np.int32)
        free = np.array(state.free, np.int64)
        needs = np.array([specs.need(kind) for kind in state.model.kinds])
        for row in np.flatnonzero(specs.single) if state.free else ():
            fitting = np.flatnonzero(needs[:, row] <= free)
            if len(fitting):
                picks[row] = fitting[self._lot(hash((state.cpu, state.free)), len(fitting))]
        return ScoreColumn(masked(np.zeros(count, np.int64), specs.fit(state)), picks)

    def pick(self, row: Ints, salt: int) -> int:
        """Return a random node that fits."""
        fitting = np.flatnonzero(row != NEVER)
        return int(fitting[self._lot(salt, len(fitting))]) if len(fitting) else 0

    def _lot(self, salt: int, count: int) -> int:
        mixed = ((salt + 1) * _SPREAD + self._seed * 0xD1B54A32D192ED03) & _BITS
        mixed = ((mixed ^ (mixed >> 31)) * 0x94D049BB133111EB) & _BITS
        return ((mixed ^ (mixed >> 29)) >> 16) % count
