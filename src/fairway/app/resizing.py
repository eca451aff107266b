"""Another size for a run that is there already: it saves, leaves, and starts again with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fairway.app.loop import Loop
from fairway.app.ports import Changes, Clock, Store
from fairway.spec.job import JobSpec, Replicas
from fairway.state.event import Event
from fairway.state.job import Job, JobKey, Leaving
from fairway.state.task import Task


async def resize(loop: Loop, store: Store, clock: Clock, key: JobKey, sizes: Mapping[str, Replicas]) -> Job | None:
    """Give the run's roles these sizes; None when it is over. A run that fits within them already goes on as it is."""
    async with loop.lock:
        job = loop.snapshot.jobs.get(key)
        if job is None:
            return None
        spec = resized(job.spec, sizes)
        if spec == job.spec:
            return job
        words = ", ".join(f"{name} {_said(each)}" for name, each in sizes.items())
        now = clock.now()
        job = replace(job, spec=spec)
        if job.ending is None and job.leaving is None and not fits(spec, loop.snapshot.tasks_of(key), job.attempt):
            wanted = {name: role.replicas.max for name, role in spec.roles.items()}
            job = replace(job, leaving=Leaving("scale", f"asked to be of another size: {words}", now, wanted))
        store.commit(Changes(jobs=(job,), events=(Event(now, str(key), "Resized", words),)))
        loop.snapshot.put_job(job)
    loop.wake()
    return job


def resized(spec: JobSpec, sizes: Mapping[str, Replicas]) -> JobSpec:
    """The document with other numbers of replicas."""
    roles = {name: role.model_copy(update={"replicas": sizes.get(name, role.replicas)}) for name, role in spec.roles.items()}
    return spec.model_copy(update={"roles": roles})


def fits(spec: JobSpec, tasks: Sequence[Task], attempt: int) -> bool:
    """Whether the tasks of the attempt are as many as the document wants; none at all are too."""
    counts = {name: sum(task.key.role == name and task.key.attempt >= attempt for task in tasks) for name in spec.roles}
    return not any(counts.values()) or all(
        role.replicas.min <= counts[name] <= role.replicas.max for name, role in spec.roles.items()
    )


def _said(replicas: Replicas) -> str:
    return str(replicas.max) if replicas.min == replicas.max else f"{replicas.min} to {replicas.max}"
