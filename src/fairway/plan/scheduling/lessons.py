"""Learning the mix of work that comes here: what starts is counted, and now and then the mix is made anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairway.plan.scheduling.memory import SchedulerMemory
from fairway.plan.scheduling.placement.mix import Mix
from fairway.plan.scheduling.shape import Seat, Shape

LEARN_FACTOR = 1.25
"""The mix is learnt anew when so many times as many tasks were started as the last time."""
FIRST_LESSON = 16
MOST_SHAPES = 512
"""So many different shapes are counted; what comes later is too rare to matter."""


class Lessons:
    """Counts into the memory, and finds the counts again fast."""

    def __init__(self, memory: SchedulerMemory) -> None:
        self._memory = memory
        self._position = {shape: position for position, (shape, _) in enumerate(memory.started)}
        self._total = sum(count for _, count in memory.started)

    def count(self, seats: Sequence[Seat]) -> Mix | None:
        """These tasks start; the mix, when it is time for a new one."""
        memory = self._memory
        # Tasks of one role have the very same shape: comparing those of a thousand tasks would take its time.
        shapes = {id(seat.shape): seat.shape for seat in seats}
        for number, times in Counter(id(seat.shape) for seat in seats).items():
            self._count_shape(shapes[number], times)
        if self._total < max(FIRST_LESSON, LEARN_FACTOR * memory.lessons):
            return None
        memory.lessons, memory.mix = self._total, Mix.of(dict(memory.started))
        return memory.mix

    def _count_shape(self, shape: Shape, times: int) -> None:
        started = self._memory.started
        position = self._position.get(shape)
        if position is None:
            if len(started) >= MOST_SHAPES:
                return
            position = self._position[shape] = len(started)
            started.append((shape, 0))
        started[position] = (shape, started[position][1] + times)
        self._total += times
