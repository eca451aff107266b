"""A cluster on which tasks are placed one by one, with timing of the decisions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskSeat, TaskShape
from fairway.plan.scheduling.score_input import tag_of
from fairway.plan.scheduling.workload_mix import DoublingMixLearner, WorkloadMix
from fairway.simulation.placement.placement_result import DecisionSpeed, RejectionCount
from fairway.state.node import ClusterNode


class PlacementPlayer:
    """Places tasks with a policy. `mix` is what the policy knows of the workload; without it the policy learns from arrivals."""

    def __init__(
        self, nodes: Sequence[ClusterNode], policy: str, mix: WorkloadMix | None, ranks: Mapping[str, int] | None = None
    ) -> None:
        self._cluster = ClusterModel(nodes, policy, mix, ranks)
        self._learner = DoublingMixLearner() if mix is None else None
        self._gangs: dict[TaskShape, GangShape] = {}
        self._took: list[int] = []
        self._arrived: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()

    def place(self, shape: TaskShape) -> TaskSeat | None:
        """Place one task and return its seat; None if it is rejected."""
        gang = self._gangs.get(shape)
        if gang is None:
            gang = self._gangs[shape] = GangShape((GangRole("task", shape),))
        began = time.process_time_ns()
        if self._learner is not None:
            mix = self._learner.see(shape)
            if mix is not None:
                self._cluster.learn(mix)
        seats = self._cluster.try_place(gang)
        self._took.append(time.process_time_ns() - began)
        kind = kind_of(shape)
        self._arrived[kind] += 1
        if seats is None:
            self._rejected[kind] += 1
            return None
        return seats[0]

    def give(self, seats: Iterable[TaskSeat]) -> None:
        """Release the seats."""
        self._cluster.give(seats)

    def kinds(self) -> dict[str, RejectionCount]:
        """Return the numbers of arrivals and rejections by kind."""
        return {kind: RejectionCount(self._arrived[kind], self._rejected[kind]) for kind in sorted(self._arrived)}

    def pace(self) -> DecisionSpeed:
        """Return the speed of the decisions."""
        microseconds = np.array(self._took or [0]) / 1000.0
        total = float(microseconds.sum()) / 1e6
        p50, p99 = np.percentile(microseconds, [50, 99])
        return DecisionSpeed(len(self._took), len(self._took) / total if total else 0.0, float(p50), float(p99))


def kind_of(shape: TaskShape) -> str:
    """Return the kind of a task: `cpu`, `share`, or `N-gpu`."""
    tag = tag_of(shape)
    return "cpu" if not tag else tag if tag == "share" else f"{tag}-gpu"


def milli_of(shape: TaskShape) -> int:
    """Return the requested thousandths of GPUs."""
    return shape.gpus * shape.gpu_milli
