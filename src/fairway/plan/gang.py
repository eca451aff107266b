"""Which tasks a run is made of, and what each needs: from the document's roles to numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.spec.job import Framework, JobSpec, Role
from fairway.spec.resources import gpu_ask
from fairway.state.job import Job
from fairway.state.launching import framework_of, starter_of
from fairway.state.task import Need, Task, TaskKey
from fairway.units import quantity

OUT_OF_MEMORY_FACTOR = 1.5


def smallest_sizes(spec: JobSpec) -> dict[str, int]:
    """Replicas a role, at the least that the gang can run with."""
    return {name: role.replicas.min for name, role in spec.roles.items()}


def largest_sizes(spec: JobSpec) -> dict[str, int]:
    """Replicas a role, at the most."""
    return {name: role.replicas.max for name, role in spec.roles.items()}


def folds_into_one(job: Job) -> bool:
    """Whether the workers become one task because one launcher starts all their processes on one machine."""
    return not job.origin.spread and first_starts_all(job)


def first_starts_all(job: Job) -> bool:
    """Whether the first worker starts the processes of all: MPI without a task that launches."""
    return framework_of(job.spec, job.origin.starters) is Framework.MPI and set(job.spec.roles) == {"worker"}


def make_tasks(job: Job, sizes: dict[str, int], capacity_cpu: float, now: float) -> list[Task]:
    """The tasks of the run's current attempt at these sizes."""
    spec = job.spec
    share = _automatic_cpu(spec, sizes, capacity_cpu)
    made: list[Task] = []
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
            made.append(task)
    return made


def another_task(job: Job, name: str, index: int, like: Sequence[Task], now: float) -> Task:
    """One more task of a role, beyond the gang's least: as the others of its role are."""
    role = job.spec.roles[name]
    need = next((task.need for task in like if task.key.role == name), None) or need_of(role, 1.0, job.memory_factor)
    key = TaskKey(job.key.namespace, job.key.name, name, index, job.attempt)
    return Task(key, need=need, processes=process_count(job, name), slots=slot_count(role), ready=True, created=now)


def process_count(job: Job, name: str) -> int:
    """Processes that the engine starts for one replica of a role: one where a launcher starts the ranks."""
    role = job.spec.roles[name]
    return 1 if starter_of(role, job.origin.starters.get(name, "")) else slot_count(role)


def slot_count(role: Role) -> int:
    """Processes of one replica, whoever starts them: as the document says, else one a GPU, else one."""
    if role.processes:
        return role.processes
    return max(1, gpu_ask(role.resources).count)


def need_of(role: Role, automatic_cpu: float, memory_factor: float = 1.0) -> Need:
    """What one replica takes from a node."""
    asked = role.resources
    gpu = gpu_ask(asked)
    return Need(
        cpu=quantity.number(asked.cpu) if asked.cpu is not None else automatic_cpu * slot_count(role),
        memory=int(quantity.byte_count(asked.memory) * memory_factor) if asked.memory is not None else 0,
        gpus=gpu.count,
        gpu_milli=gpu.milli,
        gpu_memory=gpu.memory,
        gpu_type=asked.gpu_type,
        other=dict(asked.other),
    )


def _automatic_cpu(spec: JobSpec, sizes: dict[str, int], capacity_cpu: float) -> float:
    """Cores for a process of which nothing was said: one, or less where the gang would not fit otherwise."""
    processes = sum(slot_count(role) * sizes[name] for name, role in spec.roles.items() if role.resources.cpu is None)
    said = sum(
        quantity.number(role.resources.cpu) * sizes[name] for name, role in spec.roles.items() if role.resources.cpu is not None
    )
    room = max(0.0, capacity_cpu - said)
    return min(1.0, room / processes) if processes else 1.0


def _scaled(need: Need, factor: int) -> Need:
    if factor == 1:
        return need
    return replace(
        need,
        cpu=need.cpu * factor,
        memory=need.memory * factor,
        gpus=need.gpus * factor,
        other={name: count * factor for name, count in need.other.items()},
    )
