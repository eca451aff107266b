"""Recorded traffic of real replicas: how many requests arrived, how many were rejected, and how long the others took.

The recording is repeated from any position. A slow moment in it is slow for every version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class TrafficRecording:
    """Recorded values of each tick."""

    tick: float
    came: np.ndarray
    refused: np.ndarray
    took: tuple[np.ndarray, ...] = field(repr=False)
    """Durations of single answers in seconds; a tick without answers has those of the previous tick."""

    @classmethod
    def read(cls, text: str) -> TrafficRecording:
        """Parse the text of a recording."""
        data = json.loads(text)
        durations: list[np.ndarray] = []
        for _, _, latencies in data["ticks"]:
            seconds = np.array(latencies, dtype=np.float64) * data["unit"]
            durations.append(seconds if len(seconds) or not durations else durations[-1])
        first = next(latencies for latencies in durations if len(latencies))
        arrivals, refused = (np.array([line[column] for line in data["ticks"]], dtype=np.float64) for column in (0, 1))
        return cls(
            data["tick"],
            arrivals,
            refused,
            tuple(tick_latencies if len(tick_latencies) else first for tick_latencies in durations),
        )

    def at(self, time: float) -> int:
        """Return the index of the tick at that time."""
        return int(time / self.tick) % len(self.came)

    def rate(self, time: float) -> float:
        """Return the arrivals at that time, as a fraction of the mean."""
        return float(self.came[self.at(time)] / self.came.mean())

    def bad(self, time: float) -> float:
        """Return the part of the requests that any version rejects at that time."""
        index = self.at(time)
        return float(self.refused[index] / self.came[index]) if self.came[index] else 0.0

    def slowness(self, time: float) -> np.ndarray:
        """Return the durations of single answers at that time, as fractions of the overall mean."""
        usual = float(np.mean([latencies.mean() for latencies in self.took]))
        relative: np.ndarray = self.took[self.at(time)] / usual
        return relative
