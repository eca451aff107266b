"""Policies that never preempt: first in, first out; shortest first; and backfilling behind a reservation."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from fairway.simulation.queue.free_gpus import FreeGpus, Places
from fairway.simulation.queue.queue_state import SimulatedJob, SimulatedQueue

Key = tuple[float, int]


class WaitingOrder:
    """The waiting jobs, in an order that does not change while they wait."""

    def __init__(self, key: Callable[[SimulatedJob], float]) -> None:
        self._key = key
        self._order: list[Key] = []

    def arrives(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Insert the job."""
        insort(self._order, (self._key(job), job.index))

    def departs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Remove the job."""
        del self._order[bisect_left(self._order, (self._key(job), job.index))]

    def jobs(self, hall: SimulatedQueue) -> list[SimulatedJob]:
        """Return the waiting jobs in order."""
        return [hall.waiting[index] for _, index in self._order]

    def runs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Do nothing: the running jobs are examined at each decision."""

    def ends(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Do nothing."""

    def next_look(self, hall: SimulatedQueue) -> float | None:
        """Return None: decisions depend only on events."""
        return None


class OrderedPolicy(WaitingOrder):
    """Starts jobs in order. Jobs behind one that does not fit wait too, unless `skip` is set."""

    def __init__(self, key: Callable[[SimulatedJob], float], *, skip: bool) -> None:
        super().__init__(key)
        self._skip = skip

    def decide(self, hall: SimulatedQueue) -> None:
        """Start the jobs that may start."""
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


class BackfillPolicy(WaitingOrder):
    """First in, first out with EASY backfilling, using the true durations: an oracle.

    The first job that does not fit gets a reservation for the places that become free soonest. Later jobs start if they end
    before the reservation, or if they use none of its places.
    """

    def __init__(self) -> None:
        super().__init__(_submitted)

    def decide(self, hall: SimulatedQueue) -> None:
        """Start the first jobs, reserve places for the next, and backfill behind it."""
        jobs = self.jobs(hall)
        for position, job in enumerate(jobs):
            places = hall.floor.find(job.entry.gpus)
            if places is None:
                self._fill(hall, job, jobs[position + 1 :])
                return
            hall.start(job, places)

    def _fill(self, hall: SimulatedQueue, first: SimulatedJob, behind: list[SimulatedJob]) -> None:
        if not hall.floor.idle:
            return
        reserved_at, later_floor = _reserve(hall, first)
        for job in behind:
            gpus = job.entry.gpus
            if hall.now + job.entry.duration <= reserved_at:
                places = hall.floor.find(gpus)
            else:
                places = _spare(hall.floor, later_floor, gpus)
                later_floor.take(places or ())
            if places is not None:
                hall.start(job, places)


def fifo() -> OrderedPolicy:
    """Return the policy strictly first in, first out."""
    return OrderedPolicy(_submitted, skip=False)


def skip() -> OrderedPolicy:
    """Return the policy first in, first out, in which a job that fits may pass."""
    return OrderedPolicy(_submitted, skip=True)


def sjf() -> OrderedPolicy:
    """Return the policy shortest first, in which a job that fits may pass: an oracle."""
    return OrderedPolicy(lambda job: job.entry.duration, skip=True)


def _submitted(job: SimulatedJob) -> float:
    return job.entry.submitted


def _reserve(hall: SimulatedQueue, job: SimulatedJob) -> tuple[float, FreeGpus]:
    """Return the time at which there will be room for the job, and what else will be free then."""
    later_floor = hall.floor.copy()
    ready_at = hall.now
    for other in sorted(hall.running.values(), key=lambda other: (other.left(hall.now), other.index)):
        places = later_floor.find(job.entry.gpus)
        if places is not None:
            break
        later_floor.give(other.places)
        ready_at = hall.now + other.left(hall.now)
    later_floor.take(later_floor.find(job.entry.gpus) or ())
    return ready_at, later_floor


def _spare(today: FreeGpus, then: FreeGpus, gpus: int) -> Places | None:
    """Return places that are free now and not needed by the reservation."""
    both = today.copy()
    both.free = [min(pair) for pair in zip(today.free, then.free, strict=True)]
    both.idle = sum(both.free)
    return both.find(gpus)
