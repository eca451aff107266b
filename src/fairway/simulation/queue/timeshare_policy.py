"""Fairway's policy on counted places: the order and the time-sharing of `plan.scheduling.timeshare`, without known durations."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from dataclasses import replace

from fairway.plan.scheduling.queueing import time_slice
from fairway.simulation.queue import preemption, relocation
from fairway.simulation.queue.queue_state import SimulatedJob, SimulatedQueue

Rank = tuple[int, float, int]
LineKey = tuple[int, int]
"""The level and the number of GPUs: the jobs of one line wait for the same thing."""


class TimesharePolicy:
    """Starts jobs in order of rank; a job that does not fit may preempt others if the rule allows.

    With `moves`, a run that keeps running may be restarted elsewhere if only that lets another one start.
    """

    def __init__(self, *, moves: bool = True) -> None:
        self._moves = moves
        self._lines: dict[LineKey, list[tuple[float, int]]] = {}
        self._where: dict[int, LineKey] = {}
        self._looks: list[tuple[float, int]] = []
        """A heap of the times at which the rule may rank a job differently; only entries that match `_due` count."""
        self._due: dict[int, float] = {}
        self._ready: dict[int, int] = {}
        """The levels of running jobs that have had their turn."""

    def arrives(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Insert the job into the line of its level and size."""
        self._ready.pop(job.index, None)
        standing = job.standing(hall.now)
        key = (time_slice.level_of(standing, hall.now), job.entry.gpus)
        insort(self._lines.setdefault(key, []), (job.entry.submitted, job.index))
        self._where[job.index] = key
        self._look_at(standing, job.index, hall)

    def departs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Remove the job from its line."""
        self._step_out(job)
        self._look_at(replace(job.standing(hall.now), since=hall.now), job.index, hall)

    def runs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Register a job that is already running."""
        self._see(job, hall)

    def ends(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Forget a job that is done."""
        self._ready.pop(job.index, None)
        self._due.pop(job.index, None)

    def next_look(self, hall: SimulatedQueue) -> float | None:
        """Return the next time at which a level changes or a turn has lasted long enough, while any job waits."""
        self._look_again(hall)
        return self._looks[0][0] if hall.waiting and self._looks else None

    def decide(self, hall: SimulatedQueue) -> None:
        """Process the lines in order of rank until no further job can start."""
        self._look_again(hall)
        heads = [(*self._head(key), key) for key in self._lines]
        heapq.heapify(heads)
        blocked: list[LineKey] = []
        while heads:
            *_, index, key = heapq.heappop(heads)
            if self._where.get(index) != key:
                continue
            job = hall.waiting[index]
            outcome = self._try(hall, job, key[0])
            if outcome is None:
                blocked.append(key)
                continue
            affected = [key, *outcome, *(blocked if outcome else ())]
            if outcome:
                blocked = []
            for line in dict.fromkeys(affected):
                if line in self._lines:
                    heapq.heappush(heads, (*self._head(line), line))

    def _head(self, key: LineKey) -> Rank:
        submitted, index = self._lines[key][0]
        return (key[0], submitted, index)

    def _look_at(self, standing: time_slice.TimeSliceStanding, index: int, hall: SimulatedQueue) -> None:
        look = time_slice.next_look(standing, hall.now)
        self._due.pop(index, None)
        if look is not None:
            heapq.heappush(self._looks, (look, index))
            self._due[index] = look

    def _look_again(self, hall: SimulatedQueue) -> None:
        """Update the jobs whose time has come: a waiting job may now belong to another line."""
        while self._looks and self._looks[0][0] <= hall.now:
            look, index = heapq.heappop(self._looks)
            if self._due.get(index) != look:
                continue
            if index in hall.waiting:
                self._step_out(hall.waiting[index])
                self.arrives(hall.waiting[index], hall)
            else:
                self._see(hall.running[index], hall)

    def _see(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        standing = job.standing(hall.now)
        if time_slice.had_turn(standing, hall.now):
            self._ready[job.index] = time_slice.level_of(standing, hall.now)
        self._look_at(standing, job.index, hall)

    def _step_out(self, job: SimulatedJob) -> None:
        key = self._where.pop(job.index)
        line = self._lines[key]
        del line[bisect_left(line, (job.entry.submitted, job.index))]
        if not line:
            del self._lines[key]

    def _try(self, hall: SimulatedQueue, job: SimulatedJob, level: int) -> list[LineKey] | None:
        """Start a job if the rule allows; return the lines of the jobs that it preempted. None: it must wait."""
        places = hall.floor.find(job.entry.gpus)
        if places is not None:
            hall.start(job, places)
            return []
        way = preemption.cheapest(hall, job.entry.gpus, {key: other for key, other in self._ready.items() if other > level})
        if way is not None:
            victims, places = way
            for victim in victims:
                hall.stop(victim)
            hall.start(job, places)
            return [self._where[victim.index] for victim in victims]
        if self._moves and relocation.make_room(hall, job):
            return []
        return None
