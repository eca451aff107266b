"""Learn the workload mix: count the started tasks by shape, and recompute the mix from time to time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairway.plan.scheduling.gang import TaskSeat, TaskShape
from fairway.plan.scheduling.scheduler_memory import SchedulerMemory
from fairway.plan.scheduling.workload_mix import WorkloadMix

LEARN_FACTOR = 1.25
"""The mix is recomputed when the number of started tasks has grown by this factor."""
FIRST_LESSON = 16
MOST_SHAPES = 512
"""Maximum number of distinct shapes counted; shapes that first appear later are too rare to matter."""


class WorkloadMixLearner:
    """Counts started tasks in the scheduler's memory, with an index for fast lookup."""

    def __init__(self, memory: SchedulerMemory) -> None:
        self._memory = memory
        self._position = {shape: position for position, (shape, _) in enumerate(memory.started)}
        self._total = sum(count for _, count in memory.started)

    def count(self, seats: Sequence[TaskSeat]) -> WorkloadMix | None:
        """Count started tasks; return a new mix when it is due, else None."""
        memory = self._memory
        # Tasks of one role share one shape object; grouping by identity avoids comparing a thousand shapes.
        shapes = {id(seat.shape): seat.shape for seat in seats}
        for number, times in Counter(id(seat.shape) for seat in seats).items():
            self._count_shape(shapes[number], times)
        if self._total < max(FIRST_LESSON, LEARN_FACTOR * memory.lessons):
            return None
        memory.lessons, memory.mix = self._total, WorkloadMix.of(dict(memory.started))
        return memory.mix

    def _count_shape(self, shape: TaskShape, times: int) -> None:
        started = self._memory.started
        position = self._position.get(shape)
        if position is None:
            if len(started) >= MOST_SHAPES:
                return
            position = self._position[shape] = len(started)
            started.append((shape, 0))
        started[position] = (shape, started[position][1] + times)
        self._total += times
