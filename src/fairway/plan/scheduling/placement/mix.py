"""The workload mix: which kinds of tasks come, and how often. What some policies look ahead with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairway.plan.scheduling.placement.specs import spec_of
from fairway.plan.scheduling.shape import Shape


@dataclass(frozen=True, slots=True)
class Mix:
    """Kinds of tasks and how many of each came; the commonest first. A plain value: it can be kept and compared."""

    counts: tuple[tuple[Shape, int], ...] = ()

    @classmethod
    def of(cls, shapes: Iterable[Shape] | Mapping[Shape, int]) -> Mix:
        """From tasks one by one, or from tasks and their number."""
        pairs = shapes.items() if isinstance(shapes, Mapping) else ((shape, 1) for shape in shapes)
        found: dict[Shape, int] = {}
        for shape, count in pairs:
            spec = spec_of(shape)
            found[spec] = found.get(spec, 0) + count
        # Equal counts in the order of the published experiment, which its last digits depend on.
        return cls(tuple(sorted(found.items(), key=lambda item: (item[1], *_order(item[0])), reverse=True)))

    @property
    def total(self) -> int:
        """Tasks in all."""
        return sum(count for _, count in self.counts)

    def __bool__(self) -> bool:
        return bool(self.counts)


def _order(shape: Shape) -> tuple[int, int, int, str, int]:
    return (shape.cpu, shape.gpu_milli if shape.gpus else 0, shape.gpus, "|".join(shape.gpu_types), shape.gpu_memory)


class Learner:
    """Counts what comes, and says when enough has come to look at the mix anew: at twice as many tasks each time.

    All it knows is in `counts` and `learnt_at`: made from those it goes on where it was.
    """

    FIRST = 32

    def __init__(self, counts: Mapping[Shape, int] | None = None, learnt_at: int = 0) -> None:
        self.counts: dict[Shape, int] = dict(counts or {})
        self.learnt_at = learnt_at
        """How many tasks had come when the mix was last made."""
        self._total = sum(self.counts.values())

    def see(self, shape: Shape, count: int = 1) -> Mix | None:
        """So many tasks of a shape came; the mix, when it is time for a new one."""
        spec = spec_of(shape)
        self.counts[spec] = self.counts.get(spec, 0) + count
        self._total += count
        if self._total < max(self.FIRST, 2 * self.learnt_at):
            return None
        self.learnt_at = self._total
        return Mix.of(self.counts)
