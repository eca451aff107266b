"""Builders of runs and tasks for tests, with defaults for all fields that a test does not set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairway.spec.job import JobSpec, RoleReplicas, TaskRole
from fairway.spec.queue import JobQueue
from fairway.spec.resource import ResourceAmounts
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.phase import TaskPhase
from fairway.state.queue import Queue, queue_of
from fairway.state.task import Task, TaskKey, TaskNeed


def a_role(command: Sequence[str], replicas: int = 1, processes: int = 0, limits: Mapping[str, str] | None = None) -> TaskRole:
    """Return a role that runs a command."""
    return TaskRole(
        command=tuple(command),
        replicas=RoleReplicas(min=replicas, max=replicas),
        processes=processes,
        limits=ResourceAmounts.model_validate(dict(limits or {})),
    )


def a_job(
    command: Sequence[str] = ("true",),
    *,
    name: str = "mnist-1",
    namespace: str = "default",
    replicas: int = 1,
    processes: int = 0,
    roles: Mapping[str, TaskRole] | None = None,
    origin: SubmissionOrigin | None = None,
    attempt: int = 0,
    **spec: object,
) -> JobState:
    """Return a run with one role `worker` and the command, or with these roles. `spec` sets more fields of the document."""
    series, _, number = name.rpartition("-")
    job_spec = JobSpec.model_validate({"roles": roles or {"worker": a_role(command, replicas, processes)}, **spec})
    return JobState(
        JobKey(namespace, name),
        series,
        int(number),
        job_spec,
        origin=origin or SubmissionOrigin(),
        attempt=attempt,
        created=1000.0,
    )


def a_task(
    job: JobState,
    index: int = 0,
    *,
    role: str = "worker",
    attempt: int | None = None,
    node: str = "here",
    devices: Sequence[str] = (),
    gpu: float | None = None,
    phase: TaskPhase = TaskPhase.PENDING,
) -> Task:
    """Return a task of the run's current attempt, placed on the node."""
    key = TaskKey(job.key.namespace, job.key.name, role, index, job.attempt if attempt is None else attempt)
    processes = max(1, job.spec.roles[role].processes)
    share = 1000 if gpu is None or gpu >= 1 else round(gpu * 1000)
    need = TaskNeed(cpu=1.0, gpus=len(devices) if gpu is None else max(1, int(gpu)), gpu_milli=share)
    return Task(key, phase, need, processes=processes, slots=processes, node=node, devices=tuple(devices), created=1000.0)


def the_tasks(job: JobState, *, node: str = "here") -> tuple[Task, ...]:
    """Return every task of the run's current attempt, at its minimum size."""
    places = [(name, index) for name, role in job.spec.roles.items() for index in range(role.replicas.min)]
    return tuple(a_task(job, index, role=name, node=node) for name, index in places)


def a_queue(name: str = "research", **spec: object) -> Queue:
    """Return a queue for a document with these fields."""
    return queue_of(JobQueue.model_validate({"metadata": {"name": name}, "spec": spec}))
