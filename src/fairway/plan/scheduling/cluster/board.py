"""The scores of all nodes for all kinds of tasks, kept up to date where something changed.

A decision is one look for the highest number in a row. A change of a node makes one column anew, and columns of states seen
before are found again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.cluster.machine import Machine
from fairway.plan.scheduling.cluster.scorer import Scorer
from fairway.plan.scheduling.placement.policy import NEVER
from fairway.plan.scheduling.placement.specs import Ints
from fairway.plan.scheduling.shape import Shape


class Board:
    """Scores by kind of task (row) and node (column, in order of rank)."""

    def __init__(self, scorer: Scorer, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self.memory: NDArray[np.int64] = np.zeros(len(machines), np.int64)
        self._begin(scorer)

    def _begin(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._scores: Ints = np.full((max(4, len(scorer.specs.rows)), len(self._machines)), NEVER, np.int32)
        self._stale: set[int] = set(range(len(self._machines)))

    def touch(self, at: int) -> None:
        """Something changed on this node."""
        self._stale.add(at)

    def row(self, shape: Shape) -> Ints:
        """Scores of every node for the shape, as far as cores and devices go. A view: not to be written to."""
        row = self._scorer.row(shape)
        if row is None:
            row = self._add(shape)
        self._refresh()
        found: Ints = self._scores[row]
        return found

    def pick(self, at: int, shape: Shape) -> int | None:
        """The device of the node that a share of one device goes to; None when the policy leaves it open."""
        row, machine = self._scorer.row(shape), self._machines[at]
        column, state = self._scorer.column(machine)
        if column.picks is None or row is None:
            return None
        slot = int(column.picks[row])
        return slot if tuple(machine.free) == state.free else machine.free.index(state.free[slot])

    def _add(self, shape: Shape) -> int:
        if self._scorer.full:
            self._begin(Scorer(self._scorer.policy))
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
            elif count:
                self._scores[:count, at] = self._scorer.column(machine)[0].scores
        self._stale.clear()
