"""Policies that decide again every ten minutes and give the machines to the jobs with the smallest key, preempting the others.

With true durations as the key, this is the oracle to which Fairway's policy is compared. It is work-conserving: GPUs that remain
after choosing by key are filled in the order of the key, and jobs that can keep their places keep them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from fairway.simulation.queue.free_gpus import FreeGpus, Places
from fairway.simulation.queue.queue_state import SimulatedJob, SimulatedQueue

QUANTUM = 600.0
"""Maximum seconds between two decisions; arrivals and ends cause decisions immediately."""


class RankedPolicy:
    """Runs the jobs with the smallest key. The key of a job must not change while it waits."""

    def __init__(self, key: Callable[[SimulatedJob, float], float]) -> None:
        self._key = key
        self._waiting: list[tuple[float, int]] = []

    def arrives(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Add the job to the waiting ones."""
        insort(self._waiting, (self._key(job, hall.now), job.index))

    def departs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Remove the job from the waiting ones."""
        del self._waiting[bisect_left(self._waiting, (self._key(job, hall.now), job.index))]

    def runs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Do nothing: the running jobs are examined at each decision."""

    def ends(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Do nothing."""

    def next_look(self, hall: SimulatedQueue) -> float | None:
        """Return the time after one quantum, while any job waits."""
        return hall.now + QUANTUM if hall.waiting else None

    def decide(self, hall: SimulatedQueue) -> None:
        """Choose jobs, keep those that can stay, and place the rest."""
        if not hall.waiting:
            return
        ranks = sorted((self._key(job, hall.now), job.index) for job in hall.running.values())
        stays, starts = self._assign(hall, ranks)
        for job in [job for index, job in hall.running.items() if index not in stays]:
            hall.stop(job)
        for index, places in starts.items():
            hall.start(hall.waiting[index], places)

    def _assign(self, hall: SimulatedQueue, ranks: list[tuple[float, int]]) -> tuple[set[int], dict[int, Places]]:
        """Return the jobs that stay, and those that start with their places: chosen jobs first, then jobs that also fit."""
        floor = FreeGpus(hall.floor.nodes)
        chosen = self._choose(hall, ranks)
        stays = {index for index in chosen if index in hall.running}
        for index in stays:
            floor.take(hall.running[index].places)
        starts: dict[int, Places] = {}
        for index in chosen:
            if index in hall.waiting:
                _place(floor, hall.waiting[index], starts)
        for _, index in self._all(ranks):
            if not floor.idle:
                break
            if index in hall.waiting and index not in starts:
                _place(floor, hall.waiting[index], starts)
            elif index in hall.running and index not in stays and floor.still(hall.running[index].places):
                floor.take(hall.running[index].places)
                stays.add(index)
        return stays, starts

    def _all(self, ranks: list[tuple[float, int]]) -> Iterator[tuple[float, int]]:
        return heapq.merge(ranks, tuple(self._waiting))

    def _choose(self, hall: SimulatedQueue, ranks: list[tuple[float, int]]) -> list[int]:
        """Return the first jobs in the order of the key that the GPUs suffice for."""
        nodes = hall.floor.nodes
        free = nodes.total
        chosen: list[int] = []
        for _, index in self._all(ranks):
            job = hall.running.get(index) or hall.waiting[index]
            gpus = nodes.whole(job.entry.gpus)
            if gpus <= free:
                free -= gpus
                chosen.append(index)
                if not free:
                    break
        return chosen


def srtf() -> RankedPolicy:
    """Return the policy shortest remaining time first, with the true durations: the oracle."""
    return RankedPolicy(lambda job, now: job.left(now))


def las() -> RankedPolicy:
    """Return the policy least attained service first: the job with the fewest GPU-seconds of work."""
    return RankedPolicy(lambda job, now: job.worked(now) * job.entry.gpus)


def _place(floor: FreeGpus, job: SimulatedJob, starts: dict[int, Places]) -> None:
    places = floor.find(job.entry.gpus)
    if places is not None:
        floor.take(places)
        starts[job.index] = places
