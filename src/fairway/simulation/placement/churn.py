"""Tasks that come and go: Poisson arrivals of the mix, exponential lifetimes of mean 1, and who does not fit is turned away."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairway.plan.scheduling.placement.mix import Mix
from fairway.plan.scheduling.shape import WHOLE, Seat, Shape
from fairway.simulation.placement.experiment import Progress, knowledge, silent
from fairway.simulation.placement.outcome import ChurnResult
from fairway.simulation.placement.player import Player, milli_of
from fairway.state.node import Node

ARRIVALS = 45_000
"""At load 1."""
WARM_UP = 2.0
"""Lifetimes before anything is measured."""
POINTS = 100


class Arrival(NamedTuple):
    """A task that comes and stays for a while."""

    time: float
    shape: Shape
    stay: float


def arrivals(nodes: Sequence[Node], pods: Sequence[Shape], load: float, seed: int, count: int | None = None) -> list[Arrival]:
    """Arrivals that ask for `load` times the GPUs there are, once the first lifetimes are over."""
    chance = np.random.default_rng(seed)
    number = round(ARRIVALS * load) if count is None else count
    capacity = sum(len(node.devices) for node in nodes) * WHOLE
    rate = load * capacity / (sum(map(milli_of, pods)) / len(pods))
    times = np.cumsum(chance.exponential(1.0 / rate, number))
    chosen = chance.integers(0, len(pods), number)
    stays = chance.exponential(1.0, number)
    return [Arrival(*each) for each in zip(times.tolist(), (pods[at] for at in chosen.tolist()), stays.tolist(), strict=True)]


def churn(
    nodes: Sequence[Node],
    pods: Sequence[Shape],
    load: float,
    policy: str,
    mix: str | Mix = "given",
    seed: int = 0,
    *,
    count: int | None = None,
    progress: Progress = silent,
) -> ChurnResult:
    """Play the arrivals of a seed: they are the same whatever the policy. `count` arrivals, or as many as are usual."""
    coming = arrivals(nodes, pods, load, seed, count)
    player = Player(nodes, policy, knowledge(mix, pods))
    meter = _Meter(sum(len(node.devices) for node in nodes) * WHOLE, coming[-1].time if coming else 0.0)
    leaving: list[tuple[float, int, Seat]] = []
    for number, arrival in enumerate(coming):
        if number % 256 == 0:
            progress(number, len(coming))
        while leaving and leaving[0][0] <= arrival.time:
            time, _, seat = heapq.heappop(leaving)
            player.give((seat,))
            meter.change(time, -milli_of(seat.shape))
        found = player.place(arrival.shape)
        meter.offer(arrival, taken=found is not None)
        if found is not None:
            meter.change(arrival.time, milli_of(arrival.shape))
            heapq.heappush(leaving, (arrival.time + arrival.stay, number, found))
    progress(len(coming), len(coming))
    known = mix if isinstance(mix, str) else "own"
    return ChurnResult(
        policy, known, load, seed, meter.allocation(), meter.rejected(), player.kinds(), player.pace(), meter.series()
    )


class _Meter:
    """The mean over time of what is allocated, once the cluster is warm."""

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

    def offer(self, arrival: Arrival, *, taken: bool) -> None:
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
