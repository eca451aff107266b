"""Taking turns: who stands where in queues that rotate, and when that changes though nothing happens."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

from fairway.plan.scheduling import timeshare
from fairway.plan.scheduling.timeshare import Standing
from fairway.state.job import JobKey

SLACK = 0.02
"""Seconds by which a look may come early: what is due then counts as due."""


class Looks:
    """Runs that must be looked at again at some time, once each."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, JobKey]] = []
        self._at: dict[JobKey, float] = {}

    def put(self, key: JobKey, at: float | None) -> None:
        """Look at it then, and not before; None: not at all."""
        if at is None:
            self._at.pop(key, None)
        elif self._at.get(key) != at:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))

    def due(self, now: float) -> list[JobKey]:
        """Those whose time has come. Each is told once."""
        found = []
        while self._heap and self._heap[0][0] <= now + SLACK:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                found.append(key)
        return found

    def next(self) -> float | None:
        """When the next is due."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class Rotation:
    """Running gangs that may have to make room for others of their queue: by queue and level, those that had their turn."""

    def __init__(self) -> None:
        self.looks = Looks()
        self._had: dict[str, dict[int, set[JobKey]]] = {}
        self._filed: dict[JobKey, tuple[str, int]] = {}

    def watch(self, queue: str, time_slice: float, standing: Standing, now: float) -> None:
        """See how the running gang stands now, and when that changes."""
        key = standing.key
        assert isinstance(key, JobKey)
        self.forget(key)
        if timeshare.had_turn(standing, now + SLACK, time_slice):
            level = timeshare.level_of(standing, now)
            self._had.setdefault(queue, {}).setdefault(level, set()).add(key)
            self._filed[key] = (queue, level)
        self.looks.put(key, _next_look(standing, now, time_slice))

    def forget(self, key: JobKey) -> None:
        """It runs no longer, or its queue does not rotate."""
        self.looks.put(key, None)
        filed = self._filed.pop(key, None)
        if filed is not None:
            queue, level = filed
            self._had[queue][level].discard(key)
            if not self._had[queue][level]:
                del self._had[queue][level]

    def above(self, queue: str, level: int) -> Iterable[JobKey]:
        """Those of the queue that had their turn and stand above this level, give or take a moment."""
        for each, keys in self._had.get(queue, {}).items():
            if each > level:
                yield from keys

    def anybody_above(self, queue: str, level: int) -> bool:
        """Whether there is one."""
        return any(each > level for each in self._had.get(queue, ()))


def _next_look(standing: Standing, now: float, time_slice: float) -> float | None:
    """When the running gang is to be looked at next: step by step from its start, so that it is the same whenever one asks."""
    assert standing.since is not None
    begun = standing.served - max(0.0, now - standing.since) * standing.gpus
    at: float | None = standing.since
    while at is not None and at <= now + SLACK:
        then = replace(standing, served=begun + (at - standing.since) * standing.gpus)
        at = timeshare.next_look(then, at, time_slice)
    return at
