"""Planning in which one object's failure is contained: what makes planning fail is left out of the plan and shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from fairway.app.fault import SCHEDULER, Faults
from fairway.plan import culprit, cycle, queue
from fairway.plan.plan import Plan
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey
from fairway.state.snapshot import Snapshot

HOLDING = frozenset({"plan", "store", "perform", "delete"})
"""Work whose fault holds a run back: nothing is planned for it until the retry is due."""
MOST_CULPRITS = 20
"""Objects that are found at fault within one plan, before the rest has to wait for the next turn."""


class Planner:
    """Plans over a snapshot and keeps what the next plan need not find out again."""

    def __init__(self, snapshot: Snapshot, faults: Faults, *, places: bool) -> None:
        self._snapshot = snapshot
        self._faults = faults
        self._places = places
        self._outlooks = cycle.Outlooks()
        self._hidden: set[JobKey] = set()
        """Runs that planning fails for even when nothing is decided about them."""

    @property
    def follower(self) -> queue.Follower | None:
        """The scheduler and how far it has followed; None before the first decision."""
        return self._outlooks.scheduler

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler that decided last, for questions; None before the first decision. Callers must not change it."""
        return self._outlooks.scheduler.scheduler if self._outlooks.scheduler is not None else None

    def reset(self) -> None:
        """Plan from scratch: what was planned was not carried out as a whole."""
        self._outlooks = cycle.Outlooks()

    @contextmanager
    def carrying_out(self) -> Iterator[None]:
        """Plan and perform within; whatever is raised, the next plan begins from scratch."""
        try:
            yield
        except BaseException:  # Also when the turn is cancelled in the middle.
            self.reset()
            raise

    def retry(self, key: JobKey) -> None:
        """Look at a run again that was held back."""
        self._hidden.discard(key)
        job = self._snapshot.jobs.get(key)
        if job is not None:
            self._snapshot.put_job(job)

    def held_back(self) -> set[JobKey]:
        """The runs that nothing is planned for, because work on them fails and its retry is not due."""
        found = set()
        for fault in self._faults.all():
            if fault.work not in HOLDING or self._faults.due(fault.subject, fault.work):
                continue
            if fault.subject.startswith("queue:"):
                name = fault.subject.removeprefix("queue:")
                found |= {key for key, job in self._snapshot.jobs.items() if job.spec.queue == name}
            elif "/" in fault.subject and ":" not in fault.subject:
                found.add(JobKey(*fault.subject.split("/", 1)))
        return found

    def plan(self, now: float) -> Plan:
        """The plan for everything that can be planned."""
        for _ in range(MOST_CULPRITS):
            skip = self.held_back()
            try:
                return cycle.plan(self._visible(), now, self._outlooks, places=self._places, skip=skip)
            except Exception as problem:  # The culprit is found below, or it is raised again.
                self.reset()
                if not self._blame(now, skip):
                    raise problem from None
        return Plan()

    def _visible(self) -> Snapshot:
        """The snapshot without runs and queues that planning fails for; then planning starts from scratch."""
        failing = [fault for fault in self._faults.all() if fault.work == "plan" and not self._faults.due(fault.subject, "plan")]
        queues = {fault.subject.removeprefix("queue:") for fault in failing if fault.subject.startswith("queue:")}
        if not self._hidden and not queues:
            return self._snapshot
        self.reset()
        runs = self._snapshot.jobs.keys() - self._hidden
        kept = [queue for name, queue in self._snapshot.queues.items() if name not in queues]
        found = culprit.part(self._snapshot, runs, kept)
        # What they hold stays counted.
        held = [task for key, task in self._snapshot.holding.items() if key.run in self._hidden]
        return replace(found, nodes=culprit.less(found.nodes, held))

    def _blame(self, now: float, skip: set[JobKey]) -> bool:
        """Note what planning fails for. False when it is no object that could be left out."""
        found = culprit.find(self._visible(), now, places=self._places, skip=skip)
        if found is None:
            return False
        if found.queue:
            self._faults.fail(f"queue:{found.queue}", "plan", found.problem)
        elif found.run is not None:
            self._faults.fail(str(found.run), "plan", found.problem)
            if found.run in skip:
                self._hidden.add(found.run)
        elif self._snapshot.memory and culprit.find(_amnesic(self._snapshot), now, places=self._places, skip=skip) != found:
            # What it remembers is an aid: without it the scheduler learns again.
            self._faults.fail(SCHEDULER, "read memory", found.problem)
            self._snapshot.memory = b""
        else:
            return False
        return True


def _amnesic(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot.copy(), memory=b"")
