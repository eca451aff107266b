"""State of a simulated queue at one moment: the waiting and running jobs, and the effects of starting and stopping them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Protocol

from fairway.plan.scheduling.queueing.time_slice import TimeSliceStanding
from fairway.simulation.queue.free_gpus import EqualNodes, FreeGpus, Places
from fairway.simulation.queue.recorded_job import RecordedJob

RESTART_COST = 120.0
"""Seconds for which a preempted run holds its GPUs without progress when it starts again."""


@dataclass(slots=True)
class SimulatedJob:
    """A job that is not over."""

    index: int
    entry: RecordedJob
    waiting_since: float
    since: float | None = None
    """Start of the current turn; None if it waits."""
    done: float = 0.0
    """Seconds of useful work in earlier turns."""
    owed: float = 0.0
    """Seconds without progress at the start of the current or next turn."""
    held: float = 0.0
    """Seconds for which it held GPUs in earlier turns."""
    places: Places = ()
    evictions: int = 0
    moves: int = 0
    """Evictions after which it continued elsewhere immediately."""
    started: float | None = None
    """Time of the first start."""
    turn: int = 0

    def worked(self, now: float) -> float:
        """Return the seconds of useful work so far."""
        return self.done if self.since is None else self.done + max(0.0, now - self.since - self.owed)

    def served(self, now: float) -> float:
        """Return the GPU-seconds held so far."""
        return (self.held if self.since is None else self.held + now - self.since) * self.entry.gpus

    def left(self, now: float) -> float:
        """Return the remaining seconds of useful work. Only for oracles."""
        return self.entry.duration - self.worked(now)

    def standing(self, now: float) -> TimeSliceStanding:
        """Return the job's standing for the time-sharing rule."""
        return TimeSliceStanding(
            self.index, self.entry.gpus, self.served(now), self.entry.submitted, self.since, self.waiting_since
        )


class QueuePolicy(Protocol):
    """Decides which jobs run, with `hall.start` and `hall.stop`."""

    def arrives(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Called when a job starts to wait: it is new, or was preempted."""

    def departs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Called when a job is about to run."""

    def runs(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Called for a job that was already running when the policy was created."""

    def ends(self, job: SimulatedJob, hall: SimulatedQueue) -> None:
        """Called when a running job is done."""

    def decide(self, hall: SimulatedQueue) -> None:
        """Decide after an event, or at the time of `next_look`."""

    def next_look(self, hall: SimulatedQueue) -> float | None:
        """Return the latest time of the next decision if no event occurs before; None if none is needed."""


class SimulatedQueue:
    """The state of a simulated queue. `pass_to` advances the time."""

    def __init__(self, nodes: EqualNodes, policy: QueuePolicy, restart_cost: float = RESTART_COST) -> None:
        self.now = 0.0
        self.floor = FreeGpus(nodes)
        self.policy = policy
        self.restart_cost = restart_cost
        self.waiting: dict[int, SimulatedJob] = {}
        self.running: dict[int, SimulatedJob] = {}
        self._ends: list[tuple[float, int, int]] = []

    def admit(self, job: SimulatedJob) -> None:
        """Add a new job."""
        self.waiting[job.index] = job
        self.policy.arrives(job, self)

    def start(self, job: SimulatedJob, places: Places) -> None:
        """Run a job on these places from now on."""
        self.policy.departs(job, self)
        del self.waiting[job.index]
        self.running[job.index] = job
        self.floor.take(places)
        job.places, job.since = places, self.now
        if job.started is None:
            job.started = self.now
        self._expect(job)

    def stop(self, job: SimulatedJob) -> None:
        """Preempt a job: its work is kept, and its restart costs `restart_cost`."""
        assert job.since is not None
        del self.running[job.index]
        job.done, job.held = job.worked(self.now), job.held + self.now - job.since
        job.since, job.owed, job.waiting_since = None, self.restart_cost, self.now
        job.evictions += 1
        job.turn += 1
        self.floor.give(job.places)
        self.waiting[job.index] = job
        self.policy.arrives(job, self)

    def next_end(self) -> float | None:
        """Return the time at which the next running job is done; None if none is running."""
        while self._ends:
            time, index, turn = self._ends[0]
            job = self.running.get(index)
            if job is not None and job.turn == turn:
                return time
            heapq.heappop(self._ends)
        return None

    def pass_to(self, now: float) -> list[SimulatedJob]:
        """Advance the time; remove and return the jobs that are done by then. No job may be done before `now`."""
        self.now = now
        over: list[SimulatedJob] = []
        while (end := self.next_end()) is not None and end <= now:
            job = self.running.pop(heapq.heappop(self._ends)[1])
            self.floor.give(job.places)
            self.policy.ends(job, self)
            over.append(job)
        return over

    def imagine(self, lasting: dict[int, float], policy: QueuePolicy) -> SimulatedQueue:
        """Return a copy of the state in which each job has the remaining run time given here (seconds of useful work)."""
        other = SimulatedQueue(self.floor.nodes, policy, self.restart_cost)
        other.now, other.floor = self.now, self.floor.copy()
        for job in (*self.running.values(), *self.waiting.values()):
            entry = replace(job.entry, duration=job.worked(self.now) + lasting[job.index])
            twin = replace(job, entry=entry)
            if job.since is None:
                other.admit(twin)
            else:
                other.running[twin.index] = twin
                other._expect(twin)
                policy.runs(twin, other)
        return other

    def _expect(self, job: SimulatedJob) -> None:
        assert job.since is not None
        heapq.heappush(self._ends, (job.since + job.owed + job.entry.duration - job.done, job.index, job.turn))
