"""Find resources for the replicas of a service: which runs would be preempted for them, or what they would wait for."""

from __future__ import annotations

from dataclasses import replace

from fairway.app.loop.loop import ReconcileLoop
from fairway.plan import planning_cycle
from fairway.plan.service.replica import new_replica, replica_run
from fairway.state.job import JobState
from fairway.state.service import ServiceState

MOST = 16
"""Maximum number of replicas that are tried."""


def planned_room(loop: ReconcileLoop, before: ServiceState | None, after: ServiceState) -> list[str]:
    """Describe the effect of the change on other runs; empty if there is room, or if a cluster's scheduler decides.

    Computed as the plan of a turn with the replicas of the change, which is then discarded.
    """
    count = _more_replicas(before, after)
    if not loop.places or not count:
        return []
    now, trial = loop.clock.now(), loop.snapshot.copy()
    revision = after.revisions[-1]
    runs = []
    for number in range(1, count + 1):
        replica = new_replica(after, revision.number, after.replicas_made + number, now)
        runs.append(replace(replica_run(after, revision, replica, "python"), created=now))
        trial.put_job(runs[-1])
    keys = {run.key for run in runs}
    for task in planning_cycle.plan(trial, now).tasks:
        if task.key.run in keys:
            trial.put_task(replace(task, ready=True))
    planned = planning_cycle.plan(trial, now)
    leaving = [job for job in planned.jobs if job.leaving is not None and loop.snapshot.jobs[job.key].leaving is None]
    if leaving:
        return [f"{job.key.name} would have to leave: it {_leaving(job)}" for job in leaving]
    hold = next((job.hold for job in planned.jobs if job.key in keys and job.hold is not None), None)
    if hold is None:
        return []
    helps = f" ({hold.what_would_help})" if hold.what_would_help else ""
    return [f"a replica would wait: {hold.message}{helps}"]


def _more_replicas(before: ServiceState | None, after: ServiceState) -> int:
    """Return how many replicas the change adds: all of a new service, one for a release."""
    if before is None:
        return min(MOST, max(after.spec.replicas.min, after.floor))
    return 1 if before.revisions != after.revisions else 0


def _leaving(job: JobState) -> str:
    step = job.progress.checkpoint_step
    after = f"goes on from step {step:,} later" if step is not None else "has saved nothing and begins again later"
    return f"{job.leaving.message if job.leaving else ''}, and {after}"
