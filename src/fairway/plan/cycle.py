"""One turn of planning over everything: `plan(snapshot, now)`."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.plan import elsewhere, queue
from fairway.plan import job as job_plan
from fairway.plan.plan import Draft, Plan
from fairway.state.job import Job, JobKey
from fairway.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Outlook:
    """What was found when a run was looked at last and nothing was to be done; true until the run changes or time comes."""

    version: int
    wake_at: float | None
    waits: bool
    """Whether it waits to be placed."""

    def holds(self, version: int, now: float) -> bool:
        """Whether it still says what a new look would say."""
        return self.version == version and (self.wake_at is None or now < self.wake_at)


@dataclass(slots=True)
class Outlooks:
    """Spares the next plan from looking at what did not change. An empty one gives the same plan, later.

    It belongs to one snapshot. Throw it away when a plan that was made with it was not carried out.
    """

    runs: dict[JobKey, Outlook] = field(default_factory=dict)
    scheduler: queue.Follower | None = None


def plan(snapshot: Snapshot, now: float, outlooks: Outlooks | None = None, *, places: bool = True) -> Plan:
    """What to remember and what to do next. Pure in effect: the same snapshot and time give the same plan.

    `places` is false where a cluster's scheduler does that, in a process of its own.
    """
    draft = Draft(snapshot, now)
    known = Outlooks() if outlooks is None else outlooks
    waiting: list[JobKey] = []
    for key, job in snapshot.jobs.items():
        outlook = known.runs.get(key)
        if outlook is None or not outlook.holds(snapshot.versions[key], now):
            outlook = _look(draft, job)
            if key in draft.jobs or key in draft.tasks:
                known.runs.pop(key, None)
            else:
                known.runs[key] = outlook
        if outlook.wake_at is not None:
            draft.wake(outlook.wake_at)
        if outlook.waits:
            waiting.append(key)
    if places:
        known.scheduler = queue.schedule(draft, waiting, known.scheduler)
    else:
        elsewhere.hand_over(draft, waiting)
    return draft.finish()


def _look(draft: Draft, job: Job) -> Outlook:
    others, draft.wake_at = draft.wake_at, None
    waits = not job.phase.over and job_plan.advance(draft, job)
    own, draft.wake_at = draft.wake_at, others
    return Outlook(draft.snapshot.versions[job.key], own, waits)
