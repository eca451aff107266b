"""The published experiment: pods arrive one by one, none departs, and pods that do not fit are rejected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from fairway.errors import UsageError
from fairway.plan.scheduling.cluster.scheduler_node import SchedulerNode, model_of
from fairway.plan.scheduling.gang import WHOLE, TaskSeat, TaskShape
from fairway.plan.scheduling.placement.typical_task import TypicalTasks
from fairway.plan.scheduling.score_input import NodeScoreState
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.simulation.openb_trace import ArrivalOrder, check
from fairway.simulation.placement.placement_player import PlacementPlayer, milli_of
from fairway.simulation.placement.placement_result import PlacementResult
from fairway.state.node import ClusterNode

Progress = Callable[[int, int], None]
"""Called with the number of steps done and the total."""


def silent(_done: int, _total: int) -> None:
    """Ignore progress."""


def run(
    nodes: Sequence[ClusterNode],
    pods: Sequence[TaskShape],
    order: ArrivalOrder,
    policy: str,
    mix: str | WorkloadMix = "given",
    progress: Progress = silent,
) -> PlacementResult:
    """Fill the nodes with the pods, in the given order.

    `mix` is what the policy knows of the workload: `given` (that of the pod list, as published), `learned` (from the arrivals so
    far), or a custom mix.
    """
    check(nodes, pods, order)
    names = sorted(node.name for node in nodes)
    ranks = dict(zip(names, order.ranks, strict=True)) if order.ranks else None
    player = PlacementPlayer(nodes, policy, knowledge(mix, pods), ranks)
    meter = _FillMeter(nodes, WorkloadMix.of(pods))
    for number, pod in enumerate(order.pods):
        if number % 256 == 0:
            progress(number, len(order.pods))
        shape = pods[pod]
        meter.see(shape, player.place(shape))
    progress(len(order.pods), len(order.pods))
    curve, fragmentation = meter.curves()
    return PlacementResult(
        policy=policy,
        mix=mix if isinstance(mix, str) else "own",
        nodes=len(nodes),
        gpus=meter.capacity // WHOLE,
        curve=curve,
        fragmentation=fragmentation,
        allocated=meter.allocated,
        kinds=player.kinds(),
        pace=player.pace(),
    )


def knowledge(mix: str | WorkloadMix, pods: Sequence[TaskShape]) -> WorkloadMix | None:
    """Return the mix that a policy gets, or None if it has to learn it."""
    if isinstance(mix, WorkloadMix):
        return mix
    if mix not in ("given", "learned"):
        raise UsageError(f"the mix {mix} is neither given nor learned, nor a file")
    return WorkloadMix.of(pods) if mix == "given" else None


def changed(nodes: Sequence[ClusterNode], add: Sequence[tuple[str, int]] = (), remove: Collection[str] = ()) -> list[ClusterNode]:
    """Return a modified list of nodes for what-if runs: with more nodes like a named one, and without others."""
    by_name = {node.name: node for node in nodes}
    unknown = [name for name in (*(name for name, _ in add), *remove) if name not in by_name]
    if unknown:
        raise UsageError(f"there is no node {unknown[0]} in the list of nodes")
    more = [_copy(by_name[name], number) for name, count in add for number in range(1, count + 1)]
    return [node for node in nodes if node.name not in set(remove)] + more


def _copy(node: ClusterNode, number: int) -> ClusterNode:
    name = f"{node.name}+{number}"
    devices = tuple(replace(device, uuid=f"{name}/{device.index}") for device in node.devices)
    return replace(node, name=name, devices=devices)


class _FillMeter:
    """Tracks arrivals and placements independently of the policy."""

    def __init__(self, nodes: Sequence[ClusterNode], mix: WorkloadMix) -> None:
        self._machines = {node.name: SchedulerNode(node, model_of(node), 0) for node in nodes}
        self._typical = TypicalTasks(mix)
        self._known: dict[NodeScoreState, float] = {}
        self.capacity = sum(len(node.devices) for node in nodes) * WHOLE
        self._arrived = self._used = 0
        self._fragments = sum(self._measure(machine) for machine in self._machines.values())
        self._bins: dict[int, list[tuple[float, float]]] = {}

    @property
    def allocated(self) -> float:
        """Allocated GPUs in percent."""
        return 100.0 * self._used / self.capacity if self.capacity else 0.0

    def see(self, shape: TaskShape, seat: TaskSeat | None) -> None:
        """Record a task that arrived, and its seat, None if it was rejected."""
        self._arrived += milli_of(shape)
        if seat is not None:
            machine = self._machines[seat.node]
            self._fragments -= self._measure(machine)
            machine.change(seat, 1)
            self._fragments += self._measure(machine)
            self._used += seat.milli * len(seat.devices)
        if self.capacity:
            idle = self.capacity - self._used
            share = 100.0 * self._fragments / idle if idle else 0.0
            self._bins.setdefault(round(100.0 * self._arrived / self.capacity), []).append((self.allocated, share))

    def curves(self) -> tuple[dict[int, float], dict[int, float]]:
        """Return allocation and fragmentation by percent arrived."""
        means = {percent: np.mean(points, axis=0) for percent, points in sorted(self._bins.items())}
        return {percent: float(mean[0]) for percent, mean in means.items()}, {
            percent: float(mean[1]) for percent, mean in means.items()
        }

    def _measure(self, machine: SchedulerNode) -> float:
        state = machine.state()._replace(tags=frozenset())
        fragments = self._known.get(state)
        if fragments is None:
            fragments = self._known[state] = self._typical.fragments(state)
        return fragments
