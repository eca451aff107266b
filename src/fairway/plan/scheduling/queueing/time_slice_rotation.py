"""Time slicing state: the levels of running gangs in time-sliced queues, and when they change through time alone."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

from fairway.plan.scheduling.queueing import time_slice as queueing_time_slice
from fairway.plan.scheduling.queueing.time_slice import TimeSliceStanding
from fairway.state.job import JobKey

SLACK = 0.02
"""Seconds by which a check may be early: events within this time count as due."""


class CheckTimer:
    """A timer queue with at most one entry for each run."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, JobKey]] = []
        self._at: dict[JobKey, float] = {}

    def put(self, key: JobKey, at: float | None) -> None:
        """Set the time of a run's next check; None removes it."""
        if at is None:
            self._at.pop(key, None)
        elif self._at.get(key) != at:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))

    def due(self, now: float) -> list[JobKey]:
        """Remove and return the runs whose time has come."""
        due_keys = []
        while self._heap and self._heap[0][0] <= now + SLACK:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                due_keys.append(key)
        return due_keys

    def next(self) -> float | None:
        """Return the time of the next check; None when there is none."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class TimeSliceRotation:
    """Running gangs that have used their time slice, by queue and level: others of their queue may preempt them."""

    def __init__(self) -> None:
        self.looks = CheckTimer()
        self._had: dict[str, dict[int, set[JobKey]]] = {}
        self._filed: dict[JobKey, tuple[str, int]] = {}

    def watch(self, queue: str, time_slice: float, standing: TimeSliceStanding, now: float) -> None:
        """Update the running gang's level, and schedule its next check."""
        key = standing.key
        assert isinstance(key, JobKey)
        self.forget(key)
        if queueing_time_slice.had_turn(standing, now + SLACK, time_slice):
            level = queueing_time_slice.level_of(standing, now)
            self._had.setdefault(queue, {}).setdefault(level, set()).add(key)
            self._filed[key] = (queue, level)
        self.looks.put(key, _next_look(standing, now, time_slice))

    def forget(self, key: JobKey) -> None:
        """Remove a gang that no longer runs, or whose queue is not time-sliced."""
        self.looks.put(key, None)
        filed = self._filed.pop(key, None)
        if filed is not None:
            queue, level = filed
            self._had[queue][level].discard(key)
            if not self._had[queue][level]:
                del self._had[queue][level]

    def above(self, queue: str, level: int) -> Iterable[JobKey]:
        """Yield gangs of the queue that have used their time slice and are above this level, within `SLACK`."""
        for gang_level, keys in self._had.get(queue, {}).items():
            if gang_level > level:
                yield from keys

    def anybody_above(self, queue: str, level: int) -> bool:
        """Return whether there is such a gang."""
        return any(gang_level > level for gang_level in self._had.get(queue, ()))


def _next_look(standing: TimeSliceStanding, now: float, time_slice: float) -> float | None:
    """Return the time of the gang's next check, computed stepwise from its start so that it does not depend on `now`."""
    assert standing.since is not None
    begun = standing.served - max(0.0, now - standing.since) * standing.gpus
    at: float | None = standing.since
    while at is not None and at <= now + SLACK:
        then = replace(standing, served=begun + (at - standing.since) * standing.gpus)
        at = queueing_time_slice.next_look(then, at, time_slice)
    return at
