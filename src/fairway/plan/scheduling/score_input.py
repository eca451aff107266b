"""Inputs of the policies: the needs that determine a score (`ScoreRows`) and the state of one node (`NodeScoreState`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.gang import ANYWHERE, TaskShape, milli_on

Ints = NDArray[np.int32]
Flags = NDArray[np.bool_]

NOWHERE = 1 << 20
"""More thousandths than any device has: the task cannot run there."""


MOST_PLANS = 4_000
"""Maximum number of results that a policy may cache in `ScoreRows.plans`."""


class DeviceKind(NamedTuple):
    """A class of equal devices."""

    type: str
    memory: int
    """MiB."""


@dataclass(frozen=True, slots=True)
class NodeModel:
    """A class of nodes that are equal for scoring: their devices, in order, and their cores."""

    kinds: tuple[DeviceKind, ...]
    cpu: int
    """Thousandths of a core, when idle."""

    @property
    def uniform(self) -> bool:
        """Whether all devices are equal: then their order does not affect scores."""
        return len(set(self.kinds)) <= 1


class NodeScoreState(NamedTuple):
    """The free resources of one node."""

    model: NodeModel
    cpu: int
    free: tuple[int, ...]
    """Free thousandths of each device; 0 for an unhealthy device or one in foreign use."""
    tags: frozenset[str]
    """The kinds of GPU tasks on the node (`tag_of`)."""


def spec_of(shape: TaskShape) -> TaskShape:
    """Return the needs that determine a task's score. The others only decide whether a node is allowed."""
    if shape.memory or shape.other or shape.where is not ANYWHERE:
        return replace(shape, memory=0, other=(), where=ANYWHERE)
    return shape


def need_on(shape: TaskShape, kind: DeviceKind) -> int:
    """Return the thousandths that a task takes of such a device; `NOWHERE` when it may not or cannot run there."""
    if shape.gpu_types and kind.type not in shape.gpu_types:
        return NOWHERE
    milli = milli_on(shape, kind.memory)
    return milli if milli <= 1000 else NOWHERE


def tag_of(shape: TaskShape) -> str:
    """Return the kind of a GPU task for policies that cluster kinds: `share`, or the number of whole GPUs."""
    if not shape.gpus:
        return ""
    return "share" if shape.shares else f"{shape.gpus}"


class ScoreRows:
    """All distinct needs so far, as columns of numbers; it only grows."""

    def __init__(self) -> None:
        self.rows: list[TaskShape] = []
        self.tags: list[str] = []
        self.cpu: NDArray[np.int64] = np.zeros(0, np.int64)
        self.gpus: NDArray[np.int64] = np.zeros(0, np.int64)
        self.asked: NDArray[np.int64] = np.zeros(0, np.int64)
        """Total thousandths of GPUs."""
        self.single: Flags = np.zeros(0, np.bool_)
        """Whether it is a share of one device, which the policy chooses."""
        self.plans: dict[object, object] = {}
        """A policy's cached results for these rows; cleared when a row is added or the cache is full."""
        self._needs: dict[DeviceKind, NDArray[np.int64]] = {}
        self._groups: list[NDArray[np.intp]] | None = None

    def add(self, spec: TaskShape) -> int:
        """Add needs; return their row."""
        self.rows.append(spec)
        self.tags.append(tag_of(spec))
        self.cpu = np.append(self.cpu, spec.cpu)
        self.gpus = np.append(self.gpus, spec.gpus)
        self.asked = np.append(self.asked, spec.gpus * spec.gpu_milli)
        self.single = np.append(self.single, spec.gpus == 1 and spec.shares)
        self._needs.clear()
        self.plans.clear()
        self._groups = None
        return len(self.rows) - 1

    def need(self, kind: DeviceKind) -> NDArray[np.int64]:
        """Return `need_on` for each row; 0 where no GPU is requested."""
        needs = self._needs.get(kind)
        if needs is None:
            needs = np.array([need_on(spec, kind) if spec.gpus else 0 for spec in self.rows], np.int64)
            self._needs[kind] = needs
        return needs

    def groups(self) -> list[NDArray[np.intp]]:
        """Return groups of rows that take the same devices, without shares of one device, which the policy chooses."""
        if self._groups is None:
            groups: dict[object, list[int]] = {}
            for row in np.flatnonzero(~self.single).tolist():
                spec = self.rows[row]
                key = (spec.gpus, spec.gpu_milli, spec.gpu_memory, spec.gpu_types) if spec.gpus else ()
                groups.setdefault(key, []).append(row)
            self._groups = [np.array(members, np.intp) for members in groups.values()]
        return self._groups

    def keep(self, key: object, plan: object) -> None:
        """Cache a result, within bounds."""
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        self.plans[key] = plan

    def fit(self, state: NodeScoreState) -> Flags:
        """Return which rows the node could take, by cores and devices only."""
        fits: Flags = self.cpu <= state.cpu
        count: NDArray[np.int64] = np.zeros(len(self.rows), np.int64)
        for (kind, free), times in tally(state).items():
            count += times * (self.need(kind) <= free)
        fits &= count >= self.gpus
        return fits


def tally(state: NodeScoreState) -> dict[tuple[DeviceKind, int], int]:
    """Return the number of devices of each kind and free amount, in order of first appearance."""
    counts: dict[tuple[DeviceKind, int], int] = {}
    for pair in zip(state.model.kinds, state.free, strict=True):
        counts[pair] = counts.get(pair, 0) + 1
    return counts
