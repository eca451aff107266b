"""Combines two engines: runs of jobs have pods of their own, replicas of services have pods of Deployments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from fairway.app.port.port import LogChunk, LogQuery, Observation, TaskSite, TaskUsage
from fairway.engines.kubernetes.operator.engine import KubernetesEngine
from fairway.engines.kubernetes.serving.naming import is_replica_run
from fairway.engines.kubernetes.serving.replica_engine import ReplicaEngine
from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, NudgeTask
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode
from fairway.state.task import TaskKey, TaskReport


class ClusterEngine:
    """The `Engine` port. The namespace of a run decides which engine it belongs to."""

    def __init__(self, jobs: KubernetesEngine, replicas: ReplicaEngine) -> None:
        self._jobs = jobs
        self._replicas = replicas

    async def start(self, wake: Callable[[], None]) -> None:
        """Start both engines."""
        await self._jobs.start(wake)
        self._replicas.start(wake)

    async def close(self) -> None:
        """Close the engines. Pods go on."""
        await self._jobs.close()

    async def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the nodes."""
        return await self._jobs.nodes()

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        """Carry out the actions, in order."""
        for_replicas = [action for action in actions if is_replica_run(_run_of(action))]
        for_jobs = [action for action in actions if not is_replica_run(_run_of(action))]
        return [*await self._jobs.perform(for_jobs), *await self._replicas.perform(for_replicas)]

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """Return the reports of these tasks."""
        listed = list(keys)
        jobs = await self._jobs.observe([key for key in listed if not is_replica_run(key.run)])
        return [*jobs, *await self._replicas.observe([key for key in listed if is_replica_run(key.run)])]

    async def measure(self, jobs: Iterable[JobState]) -> list[Observation]:
        """Return new observations of running jobs."""
        return await self._jobs.measure([job for job in jobs if not is_replica_run(job.key)])

    def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield what a run's tasks printed."""
        return self._replicas.logs(job, query) if is_replica_run(job.key) else self._jobs.logs(job, query)

    async def kept(self) -> list[JobKey]:
        """Return the runs that still have records."""
        return await self._jobs.kept()

    def release(self, key: JobKey) -> None:
        """Release what is held for a finished run."""
        self._jobs.release(key)

    async def type_in(self, key: TaskKey, data: bytes) -> None:
        """Raise: pods have no input."""
        await self._jobs.type_in(key, data)

    async def resize(self, key: TaskKey, rows: int, columns: int) -> None:
        """Raise: pods have no terminal."""
        await self._jobs.resize(key, rows, columns)

    async def inside(self, key: TaskKey) -> TaskSite:
        """Return how to enter the task's pod, which works through the API server."""
        return await self._jobs.inside(key)

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """Return what the tasks use."""
        listed = list(keys)
        jobs = await self._jobs.usage([key for key in listed if not is_replica_run(key.run)])
        return jobs | await self._replicas.usage([key for key in listed if is_replica_run(key.run)])


def _run_of(action: Action) -> JobKey:
    match action:
        case CreateTask() | BindGang():
            return action.job.key
        case EvictTask() | NudgeTask():
            return action.key.run
        case _:
            return action.key
