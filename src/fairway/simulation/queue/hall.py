"""Who waits and who runs at one moment of a simulated queue, and what it means to start and to leave."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Protocol

from fairway.plan.scheduling.timeshare import Standing
from fairway.simulation.queue.entry import Entry
from fairway.simulation.queue.floor import Floor, Nodes, Places

RESTART_COST = 120.0
"""Seconds that a run which had to leave holds its GPUs for nothing when it starts again."""


@dataclass(slots=True)
class Active:
    """A job that is not over."""

    index: int
    entry: Entry
    waiting_since: float
    since: float | None = None
    """Since when it runs, this time."""
    done: float = 0.0
    """Seconds of useful work in earlier turns."""
    owed: float = 0.0
    """Seconds that the present or next turn begins with for nothing."""
    held: float = 0.0
    """Seconds that it held GPUs in earlier turns."""
    places: Places = ()
    evictions: int = 0
    moves: int = 0
    """Evictions after which it went on elsewhere at once."""
    started: float | None = None
    """When it started first."""
    turn: int = 0

    def worked(self, now: float) -> float:
        """Seconds of useful work so far."""
        return self.done if self.since is None else self.done + max(0.0, now - self.since - self.owed)

    def served(self, now: float) -> float:
        """GPU-seconds it held so far."""
        return (self.held if self.since is None else self.held + now - self.since) * self.entry.gpus

    def left(self, now: float) -> float:
        """Seconds of useful work to come. Only for oracles."""
        return self.entry.duration - self.worked(now)

    def standing(self, now: float) -> Standing:
        """As the rule of time-sharing sees it."""
        return Standing(self.index, self.entry.gpus, self.served(now), self.entry.submitted, self.since, self.waiting_since)


class Policy(Protocol):
    """Decides who runs, by `hall.start` and `hall.stop`."""

    def arrives(self, job: Active, hall: Hall) -> None:
        """It waits from now on: it is new, or had to leave."""

    def departs(self, job: Active, hall: Hall) -> None:
        """It waits no longer: it is about to run."""

    def runs(self, job: Active, hall: Hall) -> None:
        """It ran already when the policy came."""

    def ends(self, job: Active, hall: Hall) -> None:
        """It ran, and is done."""

    def decide(self, hall: Hall) -> None:
        """Something has happened, or the time of `next_look` has come."""

    def next_look(self, hall: Hall) -> float | None:
        """When to decide at the latest, if nothing happens before."""


class Hall:
    """The moment. Time passes by `pass_to`."""

    def __init__(self, nodes: Nodes, policy: Policy, restart_cost: float = RESTART_COST) -> None:
        self.now = 0.0
        self.floor = Floor(nodes)
        self.policy = policy
        self.restart_cost = restart_cost
        self.waiting: dict[int, Active] = {}
        self.running: dict[int, Active] = {}
        self._ends: list[tuple[float, int, int]] = []

    def admit(self, job: Active) -> None:
        """A job is new here."""
        self.waiting[job.index] = job
        self.policy.arrives(job, self)

    def start(self, job: Active, places: Places) -> None:
        """Run it there from now on."""
        self.policy.departs(job, self)
        del self.waiting[job.index]
        self.running[job.index] = job
        self.floor.take(places)
        job.places, job.since = places, self.now
        if job.started is None:
            job.started = self.now
        self._expect(job)

    def stop(self, job: Active) -> None:
        """It must leave: its work is kept, and coming again costs it."""
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
        """When the next of those that run is done."""
        while self._ends:
            time, index, turn = self._ends[0]
            job = self.running.get(index)
            if job is not None and job.turn == turn:
                return time
            heapq.heappop(self._ends)
        return None

    def pass_to(self, now: float) -> list[Active]:
        """Let time pass; those that are done by then leave, and are returned. No end may lie before."""
        self.now = now
        over: list[Active] = []
        while (end := self.next_end()) is not None and end <= now:
            job = self.running.pop(heapq.heappop(self._ends)[1])
            self.floor.give(job.places)
            self.policy.ends(job, self)
            over.append(job)
        return over

    def imagine(self, lasting: dict[int, float], policy: Policy) -> Hall:
        """The same moment, in which each job lasts as long as is said here (seconds of useful work to come)."""
        other = Hall(self.floor.nodes, policy, self.restart_cost)
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

    def _expect(self, job: Active) -> None:
        assert job.since is not None
        heapq.heappush(self._ends, (job.since + job.owed + job.entry.duration - job.done, job.index, job.turn))
