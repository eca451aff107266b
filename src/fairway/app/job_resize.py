"""Resize an existing run: it saves, stops, and restarts with the new size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import ChangeSet, Clock, Store
from fairway.spec.job import JobSpec, RoleReplicas
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState, RunEviction
from fairway.state.task import Task


async def resize(
    loop: ReconcileLoop, store: Store, clock: Clock, key: JobKey, sizes: Mapping[str, RoleReplicas]
) -> JobState | None:
    """Set the replicas of the run's roles; None if it is over. A run that already fits the new size continues unchanged."""
    async with loop.lock:
        job = loop.snapshot.jobs.get(key)
        if job is None:
            return None
        spec = resized(job.spec, sizes)
        if spec == job.spec:
            return job
        words = ", ".join(f"{name} {_said(size)}" for name, size in sizes.items())
        now = clock.now()
        job = replace(job, spec=spec)
        if job.ending is None and job.leaving is None and not fits(spec, loop.snapshot.tasks_of(key), job.attempt):
            replicas = {name: role.replicas.max for name, role in spec.roles.items()}
            job = replace(job, leaving=RunEviction("scale", f"resize requested: {words}", now, replicas))
        store.commit(ChangeSet(jobs=(job,), events=(RunEvent(now, str(key), "Resized", words),)))
        loop.snapshot.put_job(job)
    loop.wake()
    return job


def resized(spec: JobSpec, sizes: Mapping[str, RoleReplicas]) -> JobSpec:
    """Return the spec with other numbers of replicas."""
    roles = {name: role.model_copy(update={"replicas": sizes.get(name, role.replicas)}) for name, role in spec.roles.items()}
    return spec.model_copy(update={"roles": roles})


def fits(spec: JobSpec, tasks: Sequence[Task], attempt: int) -> bool:
    """Return whether the number of tasks of the attempt is within the spec's limits; an attempt without tasks fits."""
    counts = {name: sum(task.key.role == name and task.key.attempt >= attempt for task in tasks) for name in spec.roles}
    return not any(counts.values()) or all(
        role.replicas.min <= counts[name] <= role.replicas.max for name, role in spec.roles.items()
    )


def _said(replicas: RoleReplicas) -> str:
    return str(replicas.max) if replicas.min == replicas.max else f"{replicas.min} to {replicas.max}"
