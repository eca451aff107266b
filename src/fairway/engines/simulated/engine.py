"""The simulated engine: the `Engine` port over simulated machines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from fairway.app.port.port import LogChunk, LogQuery, MetricPoint, Observation, TaskSite, TaskUsage
from fairway.engines.simulated.cluster import SimulatedCluster, SimulatedRun, SimulatedTask
from fairway.errors import ConflictError
from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, ForgetLogs, NudgeTask
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskKey, TaskReport
from fairway.units.role import leader

SMALLEST_MEMORY = 1 << 20
"""Memory usage of a task that requests none."""


class SimulatedEngine:
    """Observes simulated machines and carries out actions on them. It has no state of its own, so that several agree."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._wake: Callable[[], None] = lambda: None
        self._released: dict[JobKey, asyncio.Event] = {}

    async def start(self, wake: Callable[[], None]) -> None:
        """Start listening to events of the machines."""
        self._wake = wake
        self._cluster.listeners.append(wake)

    async def close(self) -> None:
        """Stop listening. Tasks go on."""
        if self._wake in self._cluster.listeners:
            self._cluster.listeners.remove(self._wake)

    async def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the present nodes."""
        return tuple(self._cluster.room.nodes.values())

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        """Carry out the actions, in order; return the latest report of each task."""
        reports: dict[TaskKey, TaskReport] = {}
        for action in actions:
            for report in self._perform(action):
                reports[report.key] = report
        return list(reports.values())

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """Return the state of each task."""
        return [self._cluster.look(key) for key in keys]

    async def measure(self, jobs: Iterable[JobState]) -> list[Observation]:
        """Return the progress of these runs, and their newest checkpoints."""
        observations = [self._measure(job, self._cluster.runs.get(job.key)) for job in jobs]
        return [observation for observation in observations if observation is not None]

    async def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield what the tasks printed: all of it as soon as they run."""
        yielded: set[TaskKey] = set()
        while True:
            released = self._released.setdefault(job.key, asyncio.Event())
            for life in self._asked_for(job.key, query):
                if life.key not in yielded and (data := _text(life, query)):
                    yielded.add(life.key)
                    yield LogChunk(life.key.task, life.key.attempt, data, life.started)
            if not query.follow or not self._runs(job.key):
                return
            await released.wait()

    async def kept(self) -> list[JobKey]:
        """Return the runs that have tasks."""
        return sorted(self._cluster.runs)

    def release(self, key: JobKey) -> None:
        """Release the followers of a finished run's logs."""
        released = self._released.pop(key, None)
        if released is not None:
            released.set()

    async def type_in(self, key: TaskKey, data: bytes) -> None:
        """Do nothing: simulated tasks read no input."""

    async def resize(self, key: TaskKey, rows: int, columns: int) -> None:
        """Do nothing: simulated tasks have no window."""

    async def inside(self, key: TaskKey) -> TaskSite:
        """Return a placeholder: there is no folder, and the environment only names the task."""
        if self._cluster.look(key).phase is not TaskPhase.RUNNING:
            message = f"{key.task} of {key.job} is not running"
            raise ConflictError(message, fix=f"see its state with: fairway get {key.job}")
        return TaskSite("/", {"FAIRWAY_TASK": key.task})

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """Return what running tasks requested as their usage."""
        runs = self._cluster.runs
        lives = [runs[key.run].lives[key] for key in keys if key.run in runs and key in runs[key.run].lives]
        return {
            life.key: TaskUsage(life.task.need.cpu, life.task.need.memory or SMALLEST_MEMORY)
            for life in lives
            if life.phase is TaskPhase.RUNNING and life.task is not None
        }

    def _perform(self, action: Action) -> list[TaskReport]:
        cluster = self._cluster
        match action:
            case CreateTask(job=job, task=task):
                cluster.create(job, task)
                return [cluster.look(task.key)]
            case BindGang():
                return self._bind(action)
            case EvictTask(key=key, grace=grace):
                cluster.evict(key, grace)
                return [cluster.look(key)]
            case NudgeTask(key=key):
                cluster.nudge(key)
            case ForgetJob(key=run):
                cluster.forget(run)
            case ForgetLogs(key=run):
                if run in cluster.runs:
                    cluster.runs[run].logs_gone = True
        return []

    def _bind(self, action: BindGang) -> list[TaskReport]:
        reports = [self._cluster.look(task.key) for task in action.tasks]
        if any(report.phase is not TaskPhase.PENDING or not report.ready for report in reports):
            # Carried out before, or requested too early: nothing is started twice, and no gang in parts.
            return reports
        why = self._cluster.bind(action.job, action.tasks)
        if why:
            return [TaskReport(task.key, TaskPhase.PENDING, ready=True, message=why) for task in action.tasks]
        return [self._cluster.look(task.key) for task in action.tasks]

    def _measure(self, job: JobState, run: SimulatedRun | None) -> Observation | None:
        if run is None or not run.efforts:
            return None
        now = self._cluster.clock.now()
        effort, saved = run.efforts[max(run.efforts)], run.saved(now)
        step = int(effort.done(now))
        points: tuple[MetricPoint, ...] = ()
        if step != run.told:
            run.told = step
            points = (MetricPoint(now, step, {"work": effort.done(now)}, leader(tuple(job.spec.roles))),)
        return Observation(job.key, points, saved.step if saved else None, saved.time if saved else None)

    def _asked_for(self, key: JobKey, query: LogQuery) -> list[SimulatedTask]:
        run = self._cluster.runs.get(key)
        if run is None or run.logs_gone:
            return []
        lives = [run.lives[name] for name in sorted(run.lives) if _matches(name, query)]
        newest = {(life.key.role, life.key.index): life.key.attempt for life in lives}
        lives = [life for life in lives if query.attempt is not None or life.key.attempt == newest[life.key.role, life.key.index]]
        since = float("-inf") if query.since is None else query.since
        return [life for life in lives if life.started is not None and life.started >= since]

    def _runs(self, key: JobKey) -> bool:
        run = self._cluster.runs.get(key)
        return run is not None and any(life.end is None for life in run.lives.values())


def _matches(key: TaskKey, query: LogQuery) -> bool:
    return query.role in ("", key.role) and query.index in (None, key.index) and query.attempt in (None, -1, key.attempt)


def _text(life: SimulatedTask, query: LogQuery) -> bytes:
    lines = life.behaviour.prints.splitlines(keepends=True)
    if query.grep:
        lines = [line for line in lines if re.search(query.grep, line)]
    if query.tail is not None:
        lines = lines[len(lines) - min(query.tail, len(lines)) :]
    return "".join(lines).encode()
