"""Traffic as it was recorded of real replicas: how many came, how many of them were refused, and what the others took.

The recording is played again and again from any place. What is slow in it is slow for every version at that moment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class Recording:
    """What happened in each tick."""

    tick: float
    came: np.ndarray
    refused: np.ndarray
    took: tuple[np.ndarray, ...] = field(repr=False)
    """Seconds of single answers; those of the tick before where there were none."""

    @classmethod
    def read(cls, text: str) -> Recording:
        """From the text of a recording."""
        found = json.loads(text)
        took: list[np.ndarray] = []
        for _, _, latencies in found["ticks"]:
            mine = np.array(latencies, dtype=np.float64) * found["unit"]
            took.append(mine if len(mine) or not took else took[-1])
        first = next(latencies for latencies in took if len(latencies))
        came, refused = (np.array([line[place] for line in found["ticks"]], dtype=np.float64) for place in (0, 1))
        return cls(found["tick"], came, refused, tuple(each if len(each) else first for each in took))

    def at(self, time: float) -> int:
        """The tick that is played at that time."""
        return int(time / self.tick) % len(self.came)

    def rate(self, time: float) -> float:
        """How many come at that time, as a part of the average."""
        return float(self.came[self.at(time)] / self.came.mean())

    def bad(self, time: float) -> float:
        """The part of them that any version refuses."""
        place = self.at(time)
        return float(self.refused[place] / self.came[place]) if self.came[place] else 0.0

    def slowness(self, time: float) -> np.ndarray:
        """What single answers took at that time, as a part of the average of all."""
        usual = float(np.mean([latencies.mean() for latencies in self.took]))
        found: np.ndarray = self.took[self.at(time)] / usual
        return found
