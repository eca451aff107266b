"""Policies that never interrupt: first in, first out; the shortest first; and backfilling behind a reservation."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from fairway.simulation.queue.floor import Floor, Places
from fairway.simulation.queue.hall import Active, Hall

Key = tuple[float, int]


class Line:
    """Those who wait, in an order that does not change while they wait."""

    def __init__(self, key: Callable[[Active], float]) -> None:
        self._key = key
        self._order: list[Key] = []

    def arrives(self, job: Active, hall: Hall) -> None:
        """It stands in line."""
        insort(self._order, (self._key(job), job.index))

    def departs(self, job: Active, hall: Hall) -> None:
        """It leaves the line."""
        del self._order[bisect_left(self._order, (self._key(job), job.index))]

    def jobs(self, hall: Hall) -> list[Active]:
        """Those who wait, the first first."""
        return [hall.waiting[index] for _, index in self._order]

    def runs(self, job: Active, hall: Hall) -> None:
        """Nothing to note: who runs is looked at anew each time."""

    def ends(self, job: Active, hall: Hall) -> None:
        """Nothing to note here either."""

    def next_look(self, hall: Hall) -> float | None:
        """Nothing changes by itself."""
        return None


class InOrder(Line):
    """Who is first starts first; whoever stands behind one that does not fit waits too, unless `skip` is set."""

    def __init__(self, key: Callable[[Active], float], *, skip: bool) -> None:
        super().__init__(key)
        self._skip = skip

    def decide(self, hall: Hall) -> None:
        """Start what may start."""
        blocked = hall.floor.nodes.total + 1
        for job in self.jobs(hall):
            if job.entry.gpus >= blocked:
                continue
            places = hall.floor.find(job.entry.gpus)
            if places is not None:
                hall.start(job, places)
            elif self._skip:
                blocked = job.entry.gpus
            else:
                return


class Backfill(Line):
    """First in, first out with EASY backfilling, by the true durations: an oracle.

    The first that does not fit gets the places that are free soonest. Those behind it start where they are gone again by
    then, or where they take nothing of those places.
    """

    def __init__(self) -> None:
        super().__init__(_submitted)

    def decide(self, hall: Hall) -> None:
        """Start the first, keep places for the next, and fill behind it."""
        jobs = self.jobs(hall)
        for position, job in enumerate(jobs):
            places = hall.floor.find(job.entry.gpus)
            if places is None:
                self._fill(hall, job, jobs[position + 1 :])
                return
            hall.start(job, places)

    def _fill(self, hall: Hall, first: Active, behind: list[Active]) -> None:
        if not hall.floor.idle:
            return
        at, then = _reserve(hall, first)
        for job in behind:
            gpus = job.entry.gpus
            if hall.now + job.entry.duration <= at:
                places = hall.floor.find(gpus)
            else:
                places = _spare(hall.floor, then, gpus)
                then.take(places or ())
            if places is not None:
                hall.start(job, places)


def fifo() -> InOrder:
    """Strictly first in, first out."""
    return InOrder(_submitted, skip=False)


def skip() -> InOrder:
    """First in, first out, but whatever fits may pass."""
    return InOrder(_submitted, skip=True)


def sjf() -> InOrder:
    """The shortest first, whatever fits may pass: an oracle."""
    return InOrder(lambda job: job.entry.duration, skip=True)


def _submitted(job: Active) -> float:
    return job.entry.submitted


def _reserve(hall: Hall, job: Active) -> tuple[float, Floor]:
    """When there will be room for it, and what will be free beside it then."""
    then = hall.floor.copy()
    at = hall.now
    for other in sorted(hall.running.values(), key=lambda other: (other.left(hall.now), other.index)):
        places = then.find(job.entry.gpus)
        if places is not None:
            break
        then.give(other.places)
        at = hall.now + other.left(hall.now)
    then.take(then.find(job.entry.gpus) or ())
    return at, then


def _spare(today: Floor, then: Floor, gpus: int) -> Places | None:
    """Places that are free now and are not missed then."""
    both = today.copy()
    both.free = [min(pair) for pair in zip(today.free, then.free, strict=True)]
    both.idle = sum(both.free)
    return both.find(gpus)
