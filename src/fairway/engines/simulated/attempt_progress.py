"""The joint progress of one attempt's tasks, and how much of it is saved. Computed from the time, without steps."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class SimulatedCheckpoint:
    """A checkpoint."""

    work: float
    """Seconds of work, at the least size, that need not be repeated."""
    time: float
    """When it was saved."""

    @property
    def step(self) -> int:
        """The step number: one step per second of work."""
        return int(self.work)


@dataclass(slots=True)
class AttemptProgress:
    """One attempt of a gang. It halts when the first of its tasks fails or is asked to leave: the others cannot go on alone."""

    began: float
    """When the first useful work was, or will be, done."""
    before: SimulatedCheckpoint | None
    """The checkpoint from which it continues."""
    speed: float
    every: float
    """Seconds between two checkpoints; 0 saves none."""
    alone: bool = False
    """Whether the tasks are independent: then it halts with the last of them."""
    halted: float = inf
    last_save: SimulatedCheckpoint | None = None
    """The checkpoint saved on leaving."""
    finished: bool = False
    """Whether one of its tasks has succeeded: what is stopped after that loses nothing."""

    def done(self, now: float) -> float:
        """Return the seconds of work done by then, earlier attempts included."""
        return (self.before.work if self.before else 0.0) + self.speed * self._worked(now)

    def saved(self, now: float) -> SimulatedCheckpoint | None:
        """Return the newest checkpoint by then."""
        if self.last_save is not None and self.last_save.time <= now:
            return self.last_save
        count = int(self._worked(now) / self.every) if self.every else 0
        if not count:
            return self.before
        base = self.before.work if self.before else 0.0
        return SimulatedCheckpoint(base + self.speed * count * self.every, self.began + count * self.every)

    def left_of(self, work: float) -> float:
        """Return the seconds from `began` until that much work is done."""
        return max(0.0, work - (self.before.work if self.before else 0.0)) / self.speed

    def halt(self, now: float, *, saves: bool = False) -> float:
        """Halt the attempt; return the seconds of running time that are lost. A second call changes nothing."""
        if self.halted < inf or self.finished:
            return 0.0
        self.halted = now
        if saves:
            self.last_save = SimulatedCheckpoint(self.done(now), now)
        safe = self.saved(now)
        return (self.done(now) - (safe.work if safe else 0.0)) / self.speed

    def _worked(self, now: float) -> float:
        return max(0.0, min(now, self.halted) - self.began)
