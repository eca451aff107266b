"""Churn experiment: Poisson arrivals of the mix, exponential lifetimes of mean 1; tasks that do not fit are rejected."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairway.plan.scheduling.gang import WHOLE, TaskSeat, TaskShape
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.simulation.placement.fill_experiment import Progress, knowledge, silent
from fairway.simulation.placement.placement_player import PlacementPlayer, milli_of
from fairway.simulation.placement.placement_result import ChurnResult
from fairway.state.node import ClusterNode

ARRIVALS = 45_000
"""Number of arrivals at load 1."""
WARM_UP = 2.0
"""Warm-up before measuring starts, in mean lifetimes."""
POINTS = 100


class TaskArrival(NamedTuple):
    """A task that arrives and stays for a while."""

    time: float
    shape: TaskShape
    stay: float


def arrivals(
    nodes: Sequence[ClusterNode], pods: Sequence[TaskShape], load: float, seed: int, count: int | None = None
) -> list[TaskArrival]:
    """Return arrivals that request `load` times the existing GPUs, once the first lifetimes are over."""
    random = np.random.default_rng(seed)
    number = round(ARRIVALS * load) if count is None else count
    capacity = sum(len(node.devices) for node in nodes) * WHOLE
    rate = load * capacity / (sum(map(milli_of, pods)) / len(pods))
    times = np.cumsum(random.exponential(1.0 / rate, number))
    chosen = random.integers(0, len(pods), number)
    stays = random.exponential(1.0, number)
    return [
        TaskArrival(*fields)
        for fields in zip(times.tolist(), (pods[index] for index in chosen.tolist()), stays.tolist(), strict=True)
    ]


def churn(
    nodes: Sequence[ClusterNode],
    pods: Sequence[TaskShape],
    load: float,
    policy: str,
    mix: str | WorkloadMix = "given",
    seed: int = 0,
    *,
    count: int | None = None,
    progress: Progress = silent,
) -> ChurnResult:
    """Simulate the arrivals of a seed, which do not depend on the policy. `count` arrivals, or the default number."""
    incoming = arrivals(nodes, pods, load, seed, count)
    player = PlacementPlayer(nodes, policy, knowledge(mix, pods))
    meter = _ChurnMeter(sum(len(node.devices) for node in nodes) * WHOLE, incoming[-1].time if incoming else 0.0)
    leaving: list[tuple[float, int, TaskSeat]] = []
    for number, arrival in enumerate(incoming):
        if number % 256 == 0:
            progress(number, len(incoming))
        while leaving and leaving[0][0] <= arrival.time:
            time, _, seat = heapq.heappop(leaving)
            player.give((seat,))
            meter.change(time, -milli_of(seat.shape))
        placed = player.place(arrival.shape)
        meter.offer(arrival, taken=placed is not None)
        if placed is not None:
            meter.change(arrival.time, milli_of(arrival.shape))
            heapq.heappush(leaving, (arrival.time + arrival.stay, number, placed))
    progress(len(incoming), len(incoming))
    mix_name = mix if isinstance(mix, str) else "own"
    return ChurnResult(
        policy, mix_name, load, seed, meter.allocation(), meter.rejected(), player.kinds(), player.pace(), meter.series()
    )


class _ChurnMeter:
    """Measures the mean allocation over time, after the warm-up."""

    def __init__(self, capacity: int, until: float) -> None:
        self._capacity = capacity
        self._until = until
        self._used = 0
        self._since = 0.0
        self._area = 0.0
        self._offered = self._turned = 0
        self._series: list[tuple[float, float]] = []

    def change(self, time: float, milli: int) -> None:
        self._area += self._used * max(0.0, time - max(self._since, WARM_UP))
        self._since = time
        self._used += milli
        if time * POINTS >= len(self._series) * self._until:
            self._series.append((time, 100.0 * self._used / self._capacity))

    def offer(self, arrival: TaskArrival, *, taken: bool) -> None:
        if arrival.time >= WARM_UP:
            self._offered += milli_of(arrival.shape)
            self._turned += 0 if taken else milli_of(arrival.shape)

    def allocation(self) -> float:
        span = self._since - WARM_UP
        return 100.0 * self._area / span / self._capacity if span > 0 and self._capacity else 0.0

    def rejected(self) -> float:
        return 100.0 * self._turned / self._offered if self._offered else 0.0

    def series(self) -> list[tuple[float, float]]:
        return self._series
