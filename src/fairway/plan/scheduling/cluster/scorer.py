"""What a policy says of states of nodes, kept and used again."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.plan.scheduling.cluster.machine import Machine
from fairway.plan.scheduling.placement.policy import NEVER, Column, Policy
from fairway.plan.scheduling.placement.specs import Specs, State, spec_of
from fairway.plan.scheduling.shape import Shape

MOST_ROWS = 512
"""Kinds of tasks whose scores are kept; when there are more, it begins anew."""
MOST_COLUMNS = 30_000
"""States whose scores are kept."""

Key = tuple[int, int, tuple[int, ...], frozenset[str]]


class Scorer:
    """Scores by kind of task (row) and state of a node; independent of which nodes there are."""

    def __init__(self, policy: Policy, expected: Sequence[Shape] = ()) -> None:
        """`expected` are kinds of tasks that will come: scores made together cost less than one by one."""
        self.policy = policy
        self.specs = Specs()
        self._rows: dict[Shape, int] = {spec: self.specs.add(spec) for spec in expected[:MOST_ROWS]}
        self._columns: dict[Key, Column] = {}
        self._sorts: dict[int, bool] = {}

    def row(self, shape: Shape) -> int | None:
        """The row of a shape; None when it was not seen before."""
        row = self._rows.get(shape)
        if row is None:
            row = self._rows.get(spec_of(shape))
            if row is not None:
                self._remember(shape, row)
        return row

    @property
    def full(self) -> bool:
        """Whether it is time to begin anew."""
        return len(self.specs.rows) >= MOST_ROWS

    def add(self, shape: Shape) -> int:
        """A shape that was not seen before; its row."""
        spec = spec_of(shape)
        row = self.specs.add(spec)
        self._columns.clear()
        self._rows[spec] = row
        self._remember(shape, row)
        return row

    def _remember(self, shape: Shape, row: int) -> None:
        if len(self._rows) > 16 * MOST_ROWS:
            self._rows = {spec: at for at, spec in enumerate(self.specs.rows)}
        self._rows[shape] = row

    def column(self, machine: Machine) -> tuple[Column, State, Key]:
        """What the node is worth to each row, and the state that stands for its own: devices may be in another order.

        Nodes with equal keys are worth the same.
        """
        key, state = self._key(machine)
        column = self._columns.get(key)
        if column is None:
            if len(self._columns) >= MOST_COLUMNS:
                self._columns.clear()
            column = self._columns[key] = self.policy.column(self.specs, state)
        return column, state, key

    def scores(self, row: int, machines: Sequence[Machine]) -> list[int]:
        """What each node is worth to one row. Nodes in equal states are looked at once."""
        spec = self.specs.rows[row]
        alone = Specs()
        alone.add(spec)
        seen: dict[Key, int] = {}
        found = []
        for machine in machines:
            if max(0, machine.cpu) < spec.cpu or machine.taken >= machine.tasks or machine.devices(spec) is None:
                found.append(int(NEVER))
                continue
            key, state = self._key(machine)
            if key not in seen:
                seen[key] = int(self.policy.column(alone, state).scores[0])
            found.append(seen[key])
        return found

    def _key(self, machine: Machine) -> tuple[Key, State]:
        number = machine.number
        sort = self._sorts.get(number)
        if sort is None:
            sort = self._sorts[number] = machine.model.uniform and not self.policy.ordered
        free = tuple(sorted(machine.free)) if sort else tuple(machine.free)
        tags = frozenset(machine.tags) if self.policy.tagged else frozenset()
        cpu = max(0, machine.cpu)
        return (number, cpu, free, tags), State(machine.model, cpu, free, tags)


def alike(one: Policy, other: Policy) -> bool:
    """Whether they score alike."""
    return type(one) is type(other) and one.key == other.key
