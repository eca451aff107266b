"""Cache of a policy's scores for node states."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.plan.scheduling.cluster.scheduler_node import SchedulerNode
from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.placement.placement_policy import NEVER, PlacementPolicy, ScoreColumn
from fairway.plan.scheduling.score_input import NodeScoreState, ScoreRows, spec_of

MOST_ROWS = 512
"""Maximum number of kinds of tasks with cached scores; beyond it the cache is rebuilt."""
MOST_COLUMNS = 30_000
"""Maximum number of node states with cached scores."""

Key = tuple[int, int, tuple[int, ...], frozenset[str]]


class ScoreCache:
    """Scores by kind of task (row) and node state; independent of the set of nodes."""

    def __init__(self, policy: PlacementPolicy, expected: Sequence[TaskShape] = ()) -> None:
        """`expected` are kinds of tasks that are likely to come: computing scores together is cheaper than one by one."""
        self.policy = policy
        self.specs = ScoreRows()
        self._rows: dict[TaskShape, int] = {spec: self.specs.add(spec) for spec in expected[:MOST_ROWS]}
        self._columns: dict[Key, ScoreColumn] = {}
        self._sorts: dict[int, bool] = {}

    def row(self, shape: TaskShape) -> int | None:
        """Return the row of a shape; None for a new shape."""
        row = self._rows.get(shape)
        if row is None:
            row = self._rows.get(spec_of(shape))
            if row is not None:
                self._remember(shape, row)
        return row

    @property
    def full(self) -> bool:
        """Whether the scorer is full and must be replaced."""
        return len(self.specs.rows) >= MOST_ROWS

    def add(self, shape: TaskShape) -> int:
        """Add a new shape; return its row."""
        spec = spec_of(shape)
        row = self.specs.add(spec)
        self._columns.clear()
        self._rows[spec] = row
        self._remember(shape, row)
        return row

    def _remember(self, shape: TaskShape, row: int) -> None:
        if len(self._rows) > 16 * MOST_ROWS:
            self._rows = {spec: at for at, spec in enumerate(self.specs.rows)}
        self._rows[shape] = row

    def column(self, machine: SchedulerNode) -> tuple[ScoreColumn, NodeScoreState, Key]:
        """Return the node's scores for each row, the canonical form of its state (devices may be reordered), and its key.

        Nodes with equal keys have equal scores.
        """
        key, state = self._key(machine)
        column = self._columns.get(key)
        if column is None:
            if len(self._columns) >= MOST_COLUMNS:
                self._columns.clear()
            column = self._columns[key] = self.policy.column(self.specs, state)
        return column, state, key

    def scores(self, row: int, machines: Sequence[SchedulerNode]) -> list[int]:
        """Return the score of each node for one row. Each distinct state is computed once."""
        spec = self.specs.rows[row]
        single_spec = ScoreRows()
        single_spec.add(spec)
        scores_by_key: dict[Key, int] = {}
        result = []
        for machine in machines:
            if max(0, machine.cpu) < spec.cpu or machine.taken >= machine.tasks or machine.devices(spec) is None:
                result.append(int(NEVER))
                continue
            key, state = self._key(machine)
            if key not in scores_by_key:
                scores_by_key[key] = int(self.policy.column(single_spec, state).scores[0])
            result.append(scores_by_key[key])
        return result

    def _key(self, machine: SchedulerNode) -> tuple[Key, NodeScoreState]:
        number = machine.number
        is_sortable = self._sorts.get(number)
        if is_sortable is None:
            is_sortable = self._sorts[number] = machine.model.uniform and not self.policy.ordered
        free = tuple(sorted(machine.free)) if is_sortable else tuple(machine.free)
        tags = frozenset(machine.tags) if self.policy.tagged else frozenset()
        cpu = max(0, machine.cpu)
        return (number, cpu, free, tags), NodeScoreState(machine.model, cpu, free, tags)


def alike(one: PlacementPolicy, other: PlacementPolicy) -> bool:
    """Return whether both policies give equal scores."""
    return type(one) is type(other) and one.key == other.key
