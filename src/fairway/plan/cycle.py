"""One turn of planning over everything: `plan(snapshot, now)`."""

from __future__ import annotations

from fairway.plan import job as job_plan
from fairway.plan.plan import Draft, Plan
from fairway.plan.scheduling import queue
from fairway.state.snapshot import Snapshot


def plan(snapshot: Snapshot, now: float) -> Plan:
    """What to remember and what to do next. Pure: the same snapshot and time give the same plan."""
    draft = Draft(snapshot, now)
    waiting = [key for key, job in snapshot.jobs.items() if not job.phase.over and job_plan.advance(draft, job)]
    queue.start_waiting(draft, waiting)
    return draft.finish()
