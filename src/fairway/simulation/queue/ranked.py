"""Policies that look again every ten minutes and give the machines to those with the smallest key, interrupting the others.

With true durations as the key this is the oracle that ours is measured against. It is work-conserving: what is left over
after choosing by key is filled in the order of the key, and whoever can stay where it is stays.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from fairway.simulation.queue.floor import Floor, Places
from fairway.simulation.queue.hall import Active, Hall

QUANTUM = 600.0
"""Seconds between two looks at the latest; arrivals and ends are looked at when they happen."""


class Ranked:
    """Those with the smallest key run. The key of one that waits must not change while it waits."""

    def __init__(self, key: Callable[[Active, float], float]) -> None:
        self._key = key
        self._waiting: list[tuple[float, int]] = []

    def arrives(self, job: Active, hall: Hall) -> None:
        """It stands among those who wait."""
        insort(self._waiting, (self._key(job, hall.now), job.index))

    def departs(self, job: Active, hall: Hall) -> None:
        """It is not among them any more."""
        del self._waiting[bisect_left(self._waiting, (self._key(job, hall.now), job.index))]

    def runs(self, job: Active, hall: Hall) -> None:
        """Nothing to note: who runs is looked at anew each time."""

    def ends(self, job: Active, hall: Hall) -> None:
        """Nothing to note here either."""

    def next_look(self, hall: Hall) -> float | None:
        """After the quantum, while anybody waits."""
        return hall.now + QUANTUM if hall.waiting else None

    def decide(self, hall: Hall) -> None:
        """Choose, see who can stay, place the rest."""
        if not hall.waiting:
            return
        ranks = sorted((self._key(job, hall.now), job.index) for job in hall.running.values())
        stays, starts = self._assign(hall, ranks)
        for job in [job for index, job in hall.running.items() if index not in stays]:
            hall.stop(job)
        for index, places in starts.items():
            hall.start(hall.waiting[index], places)

    def _assign(self, hall: Hall, ranks: list[tuple[float, int]]) -> tuple[set[int], dict[int, Places]]:
        """Who stays, and who starts where: those chosen first, then whoever fits beside them."""
        floor = Floor(hall.floor.nodes)
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

    def _choose(self, hall: Hall, ranks: list[tuple[float, int]]) -> list[int]:
        """By key, as many as there are GPUs for, in the order of the key."""
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


def srtf() -> Ranked:
    """The shortest remaining time first, by the true durations: the oracle."""
    return Ranked(lambda job, now: job.left(now))


def las() -> Ranked:
    """The least attained service first: who has had the fewest GPU-seconds of work."""
    return Ranked(lambda job, now: job.worked(now) * job.entry.gpus)


def _place(floor: Floor, job: Active, starts: dict[int, Places]) -> None:
    places = floor.find(job.entry.gpus)
    if places is not None:
        floor.take(places)
        starts[job.index] = places
