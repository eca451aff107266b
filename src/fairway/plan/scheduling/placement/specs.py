"""What the policies look at: the needs that make a score (`Specs`) and the state of one node (`State`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.shape import ANYWHERE, Shape, milli_on

Ints = NDArray[np.int32]
Flags = NDArray[np.bool_]

NOWHERE = 1 << 20
"""More thousandths than any device has: it does not run there."""


MOST_PLANS = 4_000
"""Things that a policy may keep about the rows of `Specs`."""


class Kind(NamedTuple):
    """Devices that are alike."""

    type: str
    memory: int
    """MiB."""


@dataclass(frozen=True, slots=True)
class Model:
    """Nodes that are alike in what matters to a score: their devices, in order, and their cores."""

    kinds: tuple[Kind, ...]
    cpu: int
    """Thousandths of a core, when idle."""

    @property
    def uniform(self) -> bool:
        """Whether all devices are alike: then their order does not matter to a score."""
        return len(set(self.kinds)) <= 1


class State(NamedTuple):
    """What is free on one node."""

    model: Model
    cpu: int
    free: tuple[int, ...]
    """Thousandths of each device; a sick or busy one has none."""
    tags: frozenset[str]
    """The kinds of GPU tasks that sit there (`tag_of`)."""


def spec_of(shape: Shape) -> Shape:
    """The needs of a task that make its score. The rest only decides whether it may go somewhere."""
    if shape.memory or shape.other or shape.where is not ANYWHERE:
        return replace(shape, memory=0, other=(), where=ANYWHERE)
    return shape


def need_on(shape: Shape, kind: Kind) -> int:
    """Thousandths that it takes of such a device; `NOWHERE` when it may not or cannot run there."""
    if shape.gpu_types and kind.type not in shape.gpu_types:
        return NOWHERE
    milli = milli_on(shape, kind.memory)
    return milli if milli <= 1000 else NOWHERE


def tag_of(shape: Shape) -> str:
    """The kind of a GPU task for those who keep kinds together: shares, or so many whole GPUs."""
    if not shape.gpus:
        return ""
    return "share" if shape.shares else f"{shape.gpus}"


class Specs:
    """All needs seen so far, as columns of numbers; it only grows."""

    def __init__(self) -> None:
        self.rows: list[Shape] = []
        self.tags: list[str] = []
        self.cpu: NDArray[np.int64] = np.zeros(0, np.int64)
        self.gpus: NDArray[np.int64] = np.zeros(0, np.int64)
        self.asked: NDArray[np.int64] = np.zeros(0, np.int64)
        """Thousandths of GPUs in all."""
        self.single: Flags = np.zeros(0, np.bool_)
        """Shares of one device: the policy chooses which."""
        self.plans: dict[object, object] = {}
        """What a policy worked out for these rows; gone when there is another, and now and then."""
        self._needs: dict[Kind, NDArray[np.int64]] = {}
        self._groups: list[NDArray[np.intp]] | None = None

    def add(self, spec: Shape) -> int:
        """One more; its row."""
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

    def need(self, kind: Kind) -> NDArray[np.int64]:
        """`need_on` for each row; nothing where no GPU is asked for."""
        found = self._needs.get(kind)
        if found is None:
            found = np.array([need_on(spec, kind) if spec.gpus else 0 for spec in self.rows], np.int64)
            self._needs[kind] = found
        return found

    def groups(self) -> list[NDArray[np.intp]]:
        """Rows that take the same devices, cores aside; without shares of one device, where the policy chooses."""
        if self._groups is None:
            groups: dict[object, list[int]] = {}
            for row in np.flatnonzero(~self.single).tolist():
                spec = self.rows[row]
                key = (spec.gpus, spec.gpu_milli, spec.gpu_memory, spec.gpu_types) if spec.gpus else ()
                groups.setdefault(key, []).append(row)
            self._groups = [np.array(members, np.intp) for members in groups.values()]
        return self._groups

    def keep(self, key: object, plan: object) -> None:
        """Remember what was worked out, within bounds."""
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        self.plans[key] = plan

    def fit(self, state: State) -> Flags:
        """Which of them the node could take, as far as cores and devices go."""
        fits: Flags = self.cpu <= state.cpu
        count: NDArray[np.int64] = np.zeros(len(self.rows), np.int64)
        for (kind, free), times in tally(state).items():
            count += times * (self.need(kind) <= free)
        fits &= count >= self.gpus
        return fits


def tally(state: State) -> dict[tuple[Kind, int], int]:
    """How many devices of each kind have how much free, in order of the first of each."""
    found: dict[tuple[Kind, int], int] = {}
    for pair in zip(state.model.kinds, state.free, strict=True):
        found[pair] = found.get(pair, 0) + 1
    return found
