"""Fragmentation gradient descent: the place with the least increase of GPU capacity that typical tasks cannot use.

Exactly as published ("Beware of Fragmentation", USENIX ATC 2023), down to the order of additions: results depend on whole
percents and ties, and a sum in another order occasionally rounds to another percent.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.gang import WHOLE, TaskShape
from fairway.plan.scheduling.placement.placement_policy import NEVER, ScoreColumn, ScoreOnlyPolicy
from fairway.plan.scheduling.placement.typical_task import Numbers, TypicalTasks
from fairway.plan.scheduling.score_input import NOWHERE, DeviceKind, Ints, NodeScoreState, ScoreRows, tally
from fairway.plan.scheduling.workload_mix import WorkloadMix

Wholes = NDArray[np.int64]


class _NextStates(NamedTuple):
    """Possible next states of a node, as arrays."""

    rows: Wholes
    """The row of `ScoreRows` that leads to the state; -1 for the current state."""
    slots: Wholes
    """The device that the task would take."""
    cpu: Wholes
    left: Wholes
    """Free thousandths of GPUs."""
    hosts: Wholes
    """Number of suitable devices for each typical task: one row each."""
    usable: Wholes
    """Free thousandths on these devices."""


class FragmentationGradientPolicy(ScoreOnlyPolicy):
    """Scores in whole percents of a sigmoid."""

    ordered = True

    def __init__(self, mix: WorkloadMix) -> None:
        self._mix = mix
        self._typical = TypicalTasks(mix)

    @property
    def key(self) -> Hashable:
        """The mix."""
        return self._mix

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Score by the gradient; for shares by that of the best device, which is returned in `picks`."""
        count = len(specs.rows)
        scores: Ints = np.full(count, NEVER, np.int32)
        picks: Ints = np.zeros(count, np.int32)
        places = self._places(specs, state)
        if len(places.rows) > 1:
            waste = self._fragments(state, places)
            gain = (1.0 / (1.0 + np.exp(-(waste[0] - waste[1:]) / 1000.0)) * 100.0).astype(np.int32)
            # The last write wins, so better places are written later, and among equals the first device last.
            order = np.lexsort((-places.slots[1:], gain))
            rows = places.rows[1:][order]
            scores[rows] = gain[order]
            picks[rows] = places.slots[1:][order]
        return ScoreColumn(scores, picks)

    def _places(self, specs: ScoreRows, state: NodeScoreState) -> _NextStates:
        """Return the current state, then the states after each way to take one more task."""
        devices = tally(state)
        needs = {kind: self._typical.need(kind) for kind, _ in devices}
        hosts = sum((times * (needs[kind] <= free) for (kind, free), times in devices.items()), np.zeros_like(self._typical.cpu))
        usable = sum(
            (times * free * (needs[kind] <= free) for (kind, free), times in devices.items()), np.zeros_like(self._typical.cpu)
        )
        fits = specs.fit(state)
        here = [np.array([value], np.int64) for value in (-1, 0, state.cpu, sum(state.free))]
        now = _NextStates(here[0], here[1], here[2], here[3], hosts[:, None], usable[:, None])
        blocks = [now, *self._shares(specs, state, fits, now), *self._others(specs, state, fits, now)]
        return _NextStates(*(np.concatenate(parts, axis=-1) for parts in zip(*blocks, strict=True)))

    def _shares(self, specs: ScoreRows, state: NodeScoreState, fits: NDArray[np.bool_], now: _NextStates) -> list[_NextStates]:
        """Return the states after shares of one device, for each distinct device."""
        blocks = []
        for kind, free in tally(state):
            rows = np.flatnonzero(fits & specs.single & (specs.need(kind) <= free))
            if not len(rows):
                continue
            taken, need = specs.need(kind)[rows], self._typical.need(kind)[:, None]
            after = free - taken
            hosts = now.hosts - (need <= free) + (need <= after)
            usable = now.usable - free * (need <= free) + after * (need <= after)
            slot = list(zip(state.model.kinds, state.free, strict=True)).index((kind, free))
            slots = np.full(len(rows), slot, np.int64)
            blocks.append(_NextStates(rows, slots, state.cpu - specs.cpu[rows], now.left - taken, hosts, usable))
        return blocks

    def _others(self, specs: ScoreRows, state: NodeScoreState, fits: NDArray[np.bool_], now: _NextStates) -> list[_NextStates]:
        """Return the states after whole devices, several shares, and tasks without GPUs: one way for each."""
        blocks = []
        for members in specs.groups():
            rows = members[fits[members]]
            if not len(rows):
                continue
            hosts, usable, free_after = now.hosts, now.usable, now.left
            for kind, free, taken in devices_of(specs.rows[rows[0]], specs, int(rows[0]), state):
                need = self._typical.need(kind)[:, None]
                after = free - taken
                hosts = hosts - (need <= free) + (need <= after)
                usable = usable - free * (need <= free) + after * (need <= after)
                free_after = free_after - taken
            shape = (len(hosts), len(rows))
            full = np.broadcast_to(hosts, shape), np.broadcast_to(usable, shape)
            blocks.append(_NextStates(rows, rows * 0, state.cpu - specs.cpu[rows], rows * 0 + free_after, *full))
        return blocks

    def _fragments(self, state: NodeScoreState, places: _NextStates) -> Numbers:
        """Return the thousandths of GPUs that a task drawn from the mix could not use, for each of at least two places.

        One sum for each reason, over the typical tasks in order (numpy adds rows one after another); then the sum of these.
        """
        typical, free = self._typical, places.left
        gpu = typical.gpus > 0
        open_to = np.zeros_like(gpu)
        for kind in set(state.model.kinds):
            open_to |= typical.need(kind) < NOWHERE
        lacks_cpu = places.cpu < typical.cpu[:, None]
        waste = typical.share[:, None] * free
        able = np.flatnonzero(gpu & open_to)
        no_cpu, no_gpu = lacks_cpu[able], places.hosts[able] < typical.gpus[able, None]
        partly = typical.share[able, None] * (free - places.usable[able])
        plain = np.flatnonzero(~gpu)
        reasons = (
            np.where(no_gpu & no_cpu, waste[able], 0.0),
            np.where(no_cpu, 0.0, np.where(no_gpu, waste[able], partly)),
            np.where(no_cpu & ~no_gpu, waste[able], 0.0),
            np.where(lacks_cpu[plain], 0.0, waste[plain]),
            np.where(lacks_cpu[plain], waste[plain], 0.0),
            waste[np.flatnonzero(gpu & ~open_to)],
        )
        total = np.zeros(len(free))
        for reason in reasons:
            total += np.add.reduce(reason, axis=0)
        return total


def devices_of(spec: TaskShape, specs: ScoreRows, row: int, state: NodeScoreState) -> list[tuple[DeviceKind, int, int]]:
    """Return the devices that a task takes, other than a share of one device: kind, free amount, taken amount."""
    fitting = []
    for kind, free in zip(state.model.kinds, state.free, strict=True):
        need = int(specs.need(kind)[row])
        if need <= free:
            fitting.append((kind, free, need))
    if spec.gpu_milli < WHOLE:
        fitting.sort(key=lambda device: device[1])
    return fitting[: spec.gpus]
