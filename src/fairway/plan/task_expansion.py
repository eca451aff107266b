"""Expand a run's roles into tasks, each with its resource needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.spec.job import JobSpec, TaskRole, TrainingFramework
from fairway.spec.resource import gpu_ask
from fairway.state.job import JobState
from fairway.state.launcher import framework_of, starter_of
from fairway.state.task import Task, TaskKey, TaskNeed
from fairway.units import quantity

OUT_OF_MEMORY_FACTOR = 1.5


def smallest_sizes(spec: JobSpec) -> dict[str, int]:
    """Return the minimum number of replicas of each role."""
    return {name: role.replicas.min for name, role in spec.roles.items()}


def largest_sizes(spec: JobSpec) -> dict[str, int]:
    """Return the maximum number of replicas of each role."""
    return {name: role.replicas.max for name, role in spec.roles.items()}


def folds_into_one(job: JobState) -> bool:
    """Return whether the workers become one task because one launcher starts all their processes on one machine."""
    return not job.origin.spread and first_starts_all(job)


def first_starts_all(job: JobState) -> bool:
    """Return whether the first worker starts the processes of all workers: MPI without a launcher task."""
    return framework_of(job.spec, job.origin.starters) is TrainingFramework.MPI and set(job.spec.roles) == {"worker"}


def make_tasks(job: JobState, sizes: dict[str, int], capacity_cpu: float, now: float) -> list[Task]:
    """Return the tasks of the run's current attempt at these sizes."""
    spec = job.spec
    share = _automatic_cpu(spec, sizes, capacity_cpu)
    tasks: list[Task] = []
    for name, role in spec.roles.items():
        ranks = process_count(job, name)
        fold = folds_into_one(job)
        copies = 1 if fold else sizes[name]
        bundle = sizes[name] if fold else 1
        for index in range(copies):
            key = TaskKey(job.key.namespace, job.key.name, name, index, job.attempt)
            task = Task(
                key,
                need=_scaled(need_of(role, share, job.memory_factor), bundle),
                processes=1 if fold else ranks,
                slots=slot_count(role) * bundle,
                created=now,
            )
            tasks.append(task)
    return tasks


def another_task(job: JobState, name: str, index: int, like: Sequence[Task], now: float) -> Task:
    """Return one more task of a role, beyond the gang's minimum, with the same needs as the role's other tasks."""
    role = job.spec.roles[name]
    need = next((task.need for task in like if task.key.role == name), None) or need_of(role, 1.0, job.memory_factor)
    key = TaskKey(job.key.namespace, job.key.name, name, index, job.attempt)
    return Task(key, need=need, processes=process_count(job, name), slots=slot_count(role), ready=True, created=now)


def process_count(job: JobState, name: str) -> int:
    """Return the processes that the engine starts for one replica of a role: one where a launcher starts the ranks."""
    role = job.spec.roles[name]
    return 1 if starter_of(role, job.origin.starters.get(name, "")) else slot_count(role)


def slot_count(role: TaskRole) -> int:
    """Return the processes of one replica, including those that a launcher starts.

    The number is `processes` of the role, else one for each GPU, else one.
    """
    if role.processes:
        return role.processes
    return max(1, gpu_ask(role.resources).count)


def need_of(role: TaskRole, automatic_cpu: float, memory_factor: float = 1.0) -> TaskNeed:
    """Return the resources that one replica takes from a node."""
    resources = role.resources
    gpu = gpu_ask(resources)
    return TaskNeed(
        cpu=quantity.number(resources.cpu) if resources.cpu is not None else automatic_cpu * slot_count(role),
        memory=int(quantity.byte_count(resources.memory) * memory_factor) if resources.memory is not None else 0,
        gpus=gpu.count,
        gpu_milli=gpu.milli,
        gpu_memory=gpu.memory,
        gpu_type=resources.gpu_type,
        other=dict(resources.other),
    )


def _automatic_cpu(spec: JobSpec, sizes: dict[str, int], capacity_cpu: float) -> float:
    """Return the cores for a process without a CPU request: one, or less where the gang would not fit otherwise."""
    processes = sum(slot_count(role) * sizes[name] for name, role in spec.roles.items() if role.resources.cpu is None)
    requested = sum(
        quantity.number(role.resources.cpu) * sizes[name] for name, role in spec.roles.items() if role.resources.cpu is not None
    )
    remaining = max(0.0, capacity_cpu - requested)
    return min(1.0, remaining / processes) if processes else 1.0


def _scaled(need: TaskNeed, factor: int) -> TaskNeed:
    if factor == 1:
        return need
    return replace(
        need,
        cpu=need.cpu * factor,
        memory=need.memory * factor,
        gpus=need.gpus * factor,
        other={name: count * factor for name, count in need.other.items()},
    )
