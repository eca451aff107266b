"""Score matrix: the scores of all nodes for all kinds of tasks, updated incrementally.

A decision takes the highest score of a row. A change of a node recomputes one column; columns of states seen before come from
a cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.cluster.scheduler_node import SchedulerNode
from fairway.plan.scheduling.cluster.score_cache import Key, ScoreCache
from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.placement.placement_policy import NEVER, PlacementPolicy
from fairway.plan.scheduling.score_input import Ints


class ScoreMatrix:
    """Score matrix by kind of task (row) and node (column, in order of rank)."""

    def __init__(self, scorer: ScoreCache, machines: Sequence[SchedulerNode]) -> None:
        self._machines = machines
        self._keys: list[Key | None] = [None] * len(machines)
        """State keys of the nodes when they were scored last; None where no task may be added."""
        self.memory: NDArray[np.int64] = np.zeros(len(machines), np.int64)
        self._begin(scorer)

    def _begin(self, scorer: ScoreCache) -> None:
        self._scorer = scorer
        self._scores: Ints = np.full((max(4, len(scorer.specs.rows)), len(self._machines)), NEVER, np.int32)
        self._stale: set[int] = set(range(len(self._machines)))

    @property
    def policy(self) -> PlacementPolicy:
        """The policy that computed the scores."""
        return self._scorer.policy

    def learn(self, scorer: ScoreCache) -> None:
        """Switch to another policy of the same class: recompute all scores, once for each distinct node state."""
        if scorer is self._scorer:
            return
        stale = self._stale
        self._begin(scorer)
        positions_by_key: dict[Key, list[int]] = {}
        for at, key in enumerate(self._keys):
            if key is not None and at not in stale:
                positions_by_key.setdefault(key, []).append(at)
        count = len(scorer.specs.rows)
        for positions in positions_by_key.values() if count else ():
            column, _, _ = scorer.column(self._machines[positions[0]])
            self._scores[:count, positions] = column.scores[:, None]
        self._stale = stale

    def touch(self, at: int) -> None:
        """Note that something changed on this node."""
        self._stale.add(at)

    def row(self, shape: TaskShape) -> Ints:
        """Return the scores of all nodes for the shape, by cores and devices only. A view; must not be modified."""
        row = self._scorer.row(shape)
        if row is None:
            row = self._add(shape)
        self._refresh()
        scores: Ints = self._scores[row]
        return scores

    def pick(self, at: int, shape: TaskShape) -> int | None:
        """Return the device that a share of one device gets on the node; None when the policy leaves it open."""
        row, machine = self._scorer.row(shape), self._machines[at]
        column, state, _ = self._scorer.column(machine)
        if column.picks is None or row is None:
            return None
        slot = int(column.picks[row])
        return slot if tuple(machine.free) == state.free else machine.free.index(state.free[slot])

    def _add(self, shape: TaskShape) -> int:
        if self._scorer.full:
            self._begin(ScoreCache(self._scorer.policy))
        self._refresh()
        row = self._scorer.add(shape)
        if row >= len(self._scores):
            more = np.full(self._scores.shape, NEVER, np.int32)
            self._scores = np.concatenate([self._scores, more])
        self._scores[row] = self._scorer.scores(row, self._machines)
        return row

    def _refresh(self) -> None:
        count = len(self._scorer.specs.rows)
        for at in self._stale:
            machine = self._machines[at]
            self.memory[at] = max(0, machine.memory)
            if machine.taken >= machine.tasks:
                self._scores[:count, at] = NEVER
                self._keys[at] = None
            else:
                column, _, self._keys[at] = self._scorer.column(machine)
                self._scores[:count, at] = column.scores
        self._stale.clear()
