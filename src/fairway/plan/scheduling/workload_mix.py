"""The workload mix: kinds of tasks and their frequencies, which some policies use to look ahead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.score_input import spec_of


@dataclass(frozen=True, slots=True)
class WorkloadMix:
    """Kinds of tasks with their counts, the most frequent first. A plain value: it can be stored and compared."""

    counts: tuple[tuple[TaskShape, int], ...] = ()

    @classmethod
    def of(cls, shapes: Iterable[TaskShape] | Mapping[TaskShape, int]) -> WorkloadMix:
        """Create a mix from single tasks, or from tasks with their counts."""
        pairs = shapes.items() if isinstance(shapes, Mapping) else ((shape, 1) for shape in shapes)
        counts: dict[TaskShape, int] = {}
        for shape, count in pairs:
            spec = spec_of(shape)
            counts[spec] = counts.get(spec, 0) + count
        # Equal counts are in the order of the published experiment, on which its last digits depend.
        return cls(tuple(sorted(counts.items(), key=lambda item: (item[1], *_order(item[0])), reverse=True)))

    @property
    def total(self) -> int:
        """Total number of tasks."""
        return sum(count for _, count in self.counts)

    def __bool__(self) -> bool:
        return bool(self.counts)


def _order(shape: TaskShape) -> tuple[int, int, int, str, int]:
    return (shape.cpu, shape.gpu_milli if shape.gpus else 0, shape.gpus, "|".join(shape.gpu_types), shape.gpu_memory)


class DoublingMixLearner:
    """Counts tasks, and returns a new mix each time their number has doubled.

    Its whole state is `counts` and `learnt_at`: a learner created from them continues where this one was.
    """

    FIRST = 32

    def __init__(self, counts: Mapping[TaskShape, int] | None = None, learnt_at: int = 0) -> None:
        self.counts: dict[TaskShape, int] = dict(counts or {})
        self.learnt_at = learnt_at
        """Number of tasks when the mix was last computed."""
        self._total = sum(self.counts.values())

    def see(self, shape: TaskShape, count: int = 1) -> WorkloadMix | None:
        """Count tasks of a shape; return a new mix when it is due, else None."""
        spec = spec_of(shape)
        self.counts[spec] = self.counts.get(spec, 0) + count
        self._total += count
        if self._total < max(self.FIRST, 2 * self.learnt_at):
            return None
        self.learnt_at = self._total
        return WorkloadMix.of(self.counts)
