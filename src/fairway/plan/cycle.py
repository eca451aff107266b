"""One turn of planning over everything: `plan(snapshot, now)`."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.plan import job as job_plan
from fairway.plan.plan import Draft, Plan
from fairway.plan.scheduling import queue
from fairway.state.job import Job, JobKey
from fairway.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Outlook:
    """What was found when a run was looked at last and nothing was to be done; true until the run changes or time comes."""

    version: int
    wake_at: float | None
    place: queue.Place | None
    """Its place in the queue when it waits to be placed."""

    def holds(self, version: int, now: float) -> bool:
        """Whether it still says what a new look would say."""
        return self.version == version and (self.wake_at is None or now < self.wake_at)


Outlooks = dict[JobKey, Outlook]
"""Spares the next plan from looking at what did not change. An empty one gives the same plan, later."""


def plan(snapshot: Snapshot, now: float, outlooks: Outlooks | None = None) -> Plan:
    """What to remember and what to do next. Pure in effect: the same snapshot and time give the same plan."""
    draft = Draft(snapshot, now)
    known = {} if outlooks is None else outlooks
    waiting: list[queue.Place] = []
    for key, job in snapshot.jobs.items():
        outlook = known.get(key)
        if outlook is None or not outlook.holds(snapshot.versions[key], now):
            outlook = _look(draft, job)
            if key in draft.jobs or key in draft.tasks:
                known.pop(key, None)
            else:
                known[key] = outlook
        if outlook.wake_at is not None:
            draft.wake(outlook.wake_at)
        if outlook.place is not None:
            waiting.append(outlook.place)
    queue.start_waiting(draft, waiting)
    return draft.finish()


def _look(draft: Draft, job: Job) -> Outlook:
    others, draft.wake_at = draft.wake_at, None
    waits = not job.phase.over and job_plan.advance(draft, job)
    place = queue.Place.of(draft, draft.job(job.key)) if waits else None
    own, draft.wake_at = draft.wake_at, others
    return Outlook(draft.snapshot.versions[job.key], own, place)
