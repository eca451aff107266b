"""All nodes with the seats taken on them, and an undo log of all changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.cluster.fit_count import Counts, FitCounts
from fairway.plan.scheduling.cluster.node_table import NodeTable
from fairway.plan.scheduling.cluster.scheduler_node import SchedulerNode, model_of
from fairway.plan.scheduling.cluster.score_cache import ScoreCache, alike
from fairway.plan.scheduling.cluster.score_matrix import ScoreMatrix
from fairway.plan.scheduling.gang import ANYWHERE, TaskNodeSelector, TaskSeat, TaskShape
from fairway.plan.scheduling.placement.placement_policy import NEVER
from fairway.plan.scheduling.placement.policy_catalogue import make
from fairway.plan.scheduling.score_input import Flags, Ints, NodeModel
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.state.node import ClusterNode

Positions = NDArray[np.intp]

MOST_WHERES = 1000
"""Maximum number of cached node selections (`TaskNodeSelector`)."""


class _SeatChange(NamedTuple):
    seat: TaskSeat
    sign: int


class _NodeChange(NamedTuple):
    name: str
    before: SchedulerNode | None


class NodePool:
    """Nodes in order of rank, what is taken on them, and the resulting scores.

    Attributes indexed by position (`machines`, `where`, `racks`, `board`, `tables`) are up to date after `arrange`.
    """

    def __init__(self, nodes: Iterable[ClusterNode], policy: str, mix: WorkloadMix, ranks: Mapping[str, int] | None) -> None:
        self.log: list[_SeatChange | _NodeChange] = []
        self.logging = False
        self._name = policy
        self.mix = mix
        self._ranks = ranks
        self._models: dict[NodeModel, tuple[NodeModel, int]] = {}
        self._load = 0
        self.renewed = 0
        """Number of times that a node was added, removed or changed."""
        self._by_name: dict[str, SchedulerNode] = {}
        self._arranged = False
        self._learnt = False
        self._scorer: ScoreCache | None = None
        for node in nodes:
            self.put(node)
        self.arrange()

    def arrange(self) -> None:
        """Rebuild everything that is indexed by position if nodes were added, removed or changed in kind."""
        if not self._arranged:
            self._arrange()
        elif not self._learnt:
            self._scorer = self._score()
            self.board.learn(self._scorer)
        self._learnt = True

    def _arrange(self) -> None:
        self._arranged = True
        self.machines = sorted(self._by_name.values(), key=lambda machine: self._rank(machine.node.name))
        self.where = {machine.node.name: at for at, machine in enumerate(self.machines)}
        self._counts = Counter(machine.number for machine in self.machines)
        self._scorer = self._score()
        self.board = ScoreMatrix(self._scorer, self.machines)
        self.tables = NodeTable(self.machines)
        self._admitted: dict[TaskNodeSelector, Flags | None] = {}
        self._rooms = FitCounts(self.machines, self.tables, self.admitted)
        racks: dict[str, list[int]] = {}
        for at, machine in enumerate(self.machines):
            racks.setdefault(machine.node.rack, []).append(at)
        self.racks: list[Positions] = [np.array(racks[name], np.intp) for name in sorted(racks)]
        """Node positions of each rack."""
        self.rack_of: Positions = np.zeros(len(self.machines), np.intp)
        """Rack number of each position."""
        for number, positions in enumerate(self.racks):
            self.rack_of[positions] = number

    def _score(self) -> ScoreCache:
        """Return the scorer for the mix and the current nodes; the previous one where it would give the same scores."""
        models = {model: self._counts[number] for model, number in self._models.values() if self._counts[number]}
        policy = make(self._name, self.mix, models)
        if self._scorer is not None and alike(policy, self._scorer.policy):
            return self._scorer
        return ScoreCache(policy, [shape for shape, _ in self.mix.counts])

    def _rank(self, name: str) -> tuple[int, str]:
        return (0, name) if self._ranks is None else (self._ranks.get(name, len(self._ranks)), name)

    def learn(self, mix: WorkloadMix) -> None:
        """Set another mix; scores are recomputed."""
        if mix != self.mix:
            self.mix = mix
            self._learnt = False

    def change(self, seat: TaskSeat, sign: int) -> None:
        """Take a seat (1) or free it (-1); seats on unknown nodes are ignored."""
        machine = self._by_name.get(seat.node)
        if machine is None:
            return
        if self.logging:
            self.log.append(_SeatChange(seat, sign))
        self._load -= machine.load
        machine.change(seat, sign)
        self._load += machine.load
        self._touch(seat.node)

    def _touch(self, name: str) -> None:
        if self._arranged:
            at = self.where[name]
            self.board.touch(at)
            self.tables.touch(at)
            self._rooms.touch(at)

    def put(self, node: ClusterNode) -> None:
        """Add a node or change its properties."""
        before = self._by_name.get(node.name)
        if before is not None and before.node == node:
            return
        model = model_of(node)
        model, number = self._models.setdefault(model, (model, len(self._models)))
        self._set(node.name, before.changed(node, model, number) if before else SchedulerNode(node, model, number))

    def node(self, name: str) -> ClusterNode:
        """Return the node of that name."""
        return self._by_name[name].node

    def drop(self, name: str) -> None:
        """Remove a node together with what was taken on it."""
        if name in self._by_name:
            self._set(name, None)

    def _set(self, name: str, machine: SchedulerNode | None) -> None:
        before = self._by_name.get(name)
        self.renewed += 1
        if self.logging:
            self.log.append(_NodeChange(name, before))
        self._load += (machine.load if machine else 0) - (before.load if before else 0)
        if machine is None:
            del self._by_name[name]
        else:
            self._by_name[name] = machine
        if machine and before and machine.number == before.number and _place(machine.node) == _place(before.node):
            if self._arranged:
                self.machines[self.where[name]] = machine
            self._touch(name)
        else:
            self._arranged = False

    def undo(self, mark: int) -> None:
        """Undo changes until the log has this length."""
        logging, self.logging = self.logging, False
        while len(self.log) > mark:
            change = self.log.pop()
            if isinstance(change, _SeatChange):
                self.change(change.seat, -change.sign)
            else:
                self._set(change.name, change.before)
        self.logging = logging

    def admitted(self, shape: TaskShape) -> Flags | None:
        """Return which nodes the shape allows by name, label and taint; None means all."""
        if shape.where not in self._admitted:
            flags = np.fromiter((machine.admits(shape) for machine in self.machines), np.bool_, len(self.machines))
            if len(self._admitted) > MOST_WHERES:
                self._admitted.clear()
            self._admitted[shape.where] = None if flags.all() else flags
        return self._admitted[shape.where]

    def room(self, shape: TaskShape) -> int:
        """Return how many tasks of the shape would fit now."""
        return self._rooms.total(shape)

    def rooms(self, shape: TaskShape) -> Counts:
        """Return how many tasks would fit on each node. A view; must not be modified."""
        return self._rooms.counts(shape)

    def room_by_rack(self, shape: TaskShape) -> Counts:
        """Return how many tasks would fit in each rack."""
        # Float sums of integers this small are exact.
        return np.bincount(self.rack_of, self.rooms(shape), len(self.racks)).astype(np.int64)

    def best(self, shape: TaskShape, within: Positions | None = None, without: Collection[int] = ()) -> int | None:
        """Return the position of the best node for one more task; None when it fits nowhere."""
        row = self.board.row(shape)
        if not len(row):
            return None
        if not without and shape.where is ANYWHERE:
            inside = row if within is None else row[within]
            best = self.choose(inside)
            if inside[best] == NEVER:
                return None
            at = best if within is None else int(within[best])
            if self.machines[at].holds(shape) and self.machines[at].admits(shape):
                return at
        row = self.open(shape, row, within)
        for at in without:
            row[at] = NEVER
        while True:
            at = self.choose(row)
            if row[at] == NEVER:
                return None
            if not (shape.other or shape.where.devices) or self.machines[at].fits(shape):
                return at
            row[at] = NEVER

    def choose(self, row: Ints) -> int:
        """Return the position of the best of these scores."""
        return self.board.policy.pick(row, self._load)

    def open(self, shape: TaskShape, row: Ints, within: Positions | None) -> Ints:
        """Return a writable copy of the row, with `NEVER` for nodes that lack memory or are not allowed."""
        usable = self.board.memory >= shape.memory
        admitted = self.admitted(shape)
        if admitted is not None:
            usable &= admitted
        if within is not None:
            inside = np.zeros(len(row), np.bool_)
            inside[within] = True
            usable &= inside
        result: Ints = np.where(usable, row, NEVER)
        return result


def _place(node: ClusterNode) -> object:
    return (node.labels, node.taints, node.rack)
