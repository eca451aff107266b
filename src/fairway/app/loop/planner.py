"""Planning that contains the failure of one object: an object that makes planning fail is left out of the plan and shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from fairway.app.loop.fault_register import SCHEDULER, FaultRegister
from fairway.plan import faulty_object, planning_cycle, scheduler_sync
from fairway.plan.plan import EnginePlan
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey
from fairway.state.snapshot import PlannerSnapshot

HOLDING = frozenset({"plan", "store", "perform", "delete"})
"""Work whose fault holds a run back: nothing is planned for the run until the retry is due."""
MOST_CULPRITS = 20
"""Maximum number of failing objects identified for one plan; further ones have to wait for the next turn."""


class LoopPlanner:
    """Plans on a snapshot and caches what the next plan can reuse."""

    def __init__(self, snapshot: PlannerSnapshot, faults: FaultRegister, *, places: bool) -> None:
        self._snapshot = snapshot
        self._faults = faults
        self._places = places
        self._outlooks = planning_cycle.RunPlanCache()
        self._hidden: set[JobKey] = set()
        """Runs for which planning fails even if nothing is decided about them."""

    @property
    def follower(self) -> scheduler_sync.SchedulerSync | None:
        """The scheduler, and how far it has followed the snapshot; None before the first decision."""
        return self._outlooks.scheduler

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler that decided last, for queries; None before the first decision. Callers must not change it."""
        return self._outlooks.scheduler.scheduler if self._outlooks.scheduler is not None else None

    def reset(self) -> None:
        """Drop the cache, because a plan was not carried out completely; the next plan starts from scratch."""
        self._outlooks = planning_cycle.RunPlanCache()

    @contextmanager
    def carrying_out(self) -> Iterator[None]:
        """Context in which a plan is made and performed; after any exception the next plan starts from scratch."""
        try:
            yield
        except BaseException:  # Also when the turn is cancelled in the middle.
            self.reset()
            raise

    def retry(self, key: JobKey) -> None:
        """Plan again for a run that was held back."""
        self._hidden.discard(key)
        job = self._snapshot.jobs.get(key)
        if job is not None:
            self._snapshot.put_job(job)

    def held_back(self) -> set[JobKey]:
        """Return the runs for which nothing is planned, because work on them fails and its retry is not due."""
        held = set()
        for fault in self._faults.all():
            if fault.work not in HOLDING or self._faults.due(fault.subject, fault.work):
                continue
            if fault.subject.startswith("queue:"):
                name = fault.subject.removeprefix("queue:")
                held |= {key for key, job in self._snapshot.jobs.items() if job.spec.queue == name}
            elif "/" in fault.subject and ":" not in fault.subject:
                held.add(JobKey(*fault.subject.split("/", 1)))
        return held

    def plan(self, now: float) -> EnginePlan:
        """Return the plan for everything that can be planned."""
        for _ in range(MOST_CULPRITS):
            skip = self.held_back()
            try:
                return planning_cycle.plan(self._visible(), now, self._outlooks, places=self._places, skip=skip)
            except Exception as problem:  # The failing object is identified below, or the exception is raised again.
                self.reset()
                if not self._blame(now, skip):
                    raise problem from None
        return EnginePlan()

    def _visible(self) -> PlannerSnapshot:
        """Return the snapshot without runs and queues for which planning fails; planning then starts from scratch."""
        failing = [fault for fault in self._faults.all() if fault.work == "plan" and not self._faults.due(fault.subject, "plan")]
        queues = {fault.subject.removeprefix("queue:") for fault in failing if fault.subject.startswith("queue:")}
        if not self._hidden and not queues:
            return self._snapshot
        self.reset()
        runs = self._snapshot.jobs.keys() - self._hidden
        visible_queues = [queue for name, queue in self._snapshot.queues.items() if name not in queues]
        visible = faulty_object.part(self._snapshot, runs, visible_queues)
        # Resources that hidden runs hold stay allocated.
        hidden_tasks = [task for key, task in self._snapshot.holding.items() if key.run in self._hidden]
        return replace(visible, nodes=faulty_object.less(visible.nodes, hidden_tasks))

    def _blame(self, now: float, skip: set[JobKey]) -> bool:
        """Identify the object for which planning fails and record its fault. False if no object could be left out."""
        failing = faulty_object.find(self._visible(), now, places=self._places, skip=skip)
        if failing is None:
            return False
        if failing.queue:
            self._faults.fail(f"queue:{failing.queue}", "plan", failing.problem)
        elif failing.run is not None:
            self._faults.fail(str(failing.run), "plan", failing.problem)
            if failing.run in skip:
                self._hidden.add(failing.run)
        elif (
            self._snapshot.memory and faulty_object.find(_amnesic(self._snapshot), now, places=self._places, skip=skip) != failing
        ):
            # The memory is only an aid: without it the scheduler learns again.
            self._faults.fail(SCHEDULER, "read memory", failing.problem)
            self._snapshot.memory = b""
        else:
            return False
        return True


def _amnesic(snapshot: PlannerSnapshot) -> PlannerSnapshot:
    return replace(snapshot.copy(), memory=b"")
