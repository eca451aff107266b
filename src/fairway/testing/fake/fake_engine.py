"""An engine without processes: for fast tests of the control loop and the layers above it.

A task's command determines its behaviour: `["exit", "3"]` exits at once with 3, `["stay"]` runs until it is evicted or a test
ends it. State that a real engine keeps on disk is in `FakeMachine`, so that a new engine over the same machine simulates a
restart of the daemon.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fairway.app.port.port import Clock, LogChunk, LogQuery, Observation, TaskSite, TaskUsage
from fairway.errors import UnavailableError
from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, ForgetLogs, NudgeTask
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskExit, TaskKey, TaskReport


@dataclass(slots=True)
class FakeMachine:
    """State that outlives an engine: the started tasks and their exits."""

    node: ClusterNode = ClusterNode("here", cpu=4.0, memory=8 << 30)
    running: set[TaskKey] = field(default_factory=set)
    ended: dict[TaskKey, TaskExit] = field(default_factory=dict)
    started: list[TaskKey] = field(default_factory=list)
    times: dict[TaskKey, float] = field(default_factory=dict)
    """Start time of each task."""
    forgotten: list[JobKey] = field(default_factory=list)
    logs_forgotten: list[JobKey] = field(default_factory=list)
    nudged: list[TaskKey] = field(default_factory=list)
    typed: list[tuple[TaskKey, bytes]] = field(default_factory=list)
    deaf: set[str] = field(default_factory=set)
    """The tasks that accept no input."""
    observations: list[Observation] = field(default_factory=list)
    """Returned by the next `measure`."""


class FakeEngine:
    """The `Engine` port over a `FakeMachine`."""

    def __init__(self, machine: FakeMachine, clock: Clock) -> None:
        self.machine = machine
        self.clock = clock
        self.created: set[TaskKey] = set()
        self._wake: Callable[[], None] = lambda: None

    async def start(self, wake: Callable[[], None]) -> None:
        """Store the wake callback."""
        self._wake = wake

    async def close(self) -> None:
        """Do nothing."""

    async def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the single node."""
        return (self.machine.node,)

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        """Perform the actions; return reports of created and bound tasks."""
        reports: list[TaskReport] = []
        for action in actions:
            match action:
                case CreateTask(task=task):
                    self.created.add(task.key)
                    reports.append(self._look(task.key))
                case BindGang(job=job, tasks=tasks):
                    for task in tasks:
                        self._start(job, task.key)
                        reports.append(self._look(task.key))
                case EvictTask(key=key):
                    self.end(key, TaskExit(None, 15, by_us=True))
                case NudgeTask(key=key):
                    self.machine.nudged.append(key)
                case ForgetJob(key=job_key):
                    self.machine.forgotten.append(job_key)
                case ForgetLogs(key=job_key):
                    self.machine.logs_forgotten.append(job_key)
        return reports

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """Return a report for each key."""
        return [self._look(key) for key in keys]

    async def measure(self, jobs: Iterable[JobState]) -> list[Observation]:
        """Return the observations that a test prepared for these runs."""
        keys = {job.key for job in jobs}
        matching = [observation for observation in self.machine.observations if observation.key in keys]
        self.machine.observations = [observation for observation in self.machine.observations if observation.key not in keys]
        return matching

    async def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield one line for each started task."""
        for key in self.machine.started:
            if key.run == job.key and query.role in ("", key.role):
                yield LogChunk(key.task, key.attempt, f"hello from {key.task}\n".encode())

    async def kept(self) -> list[JobKey]:
        """Return the runs that were started and not forgotten."""
        return sorted({key.run for key in self.machine.started} - set(self.machine.forgotten))

    def release(self, key: JobKey) -> None:
        """Do nothing: no data is cached."""

    async def type_in(self, key: TaskKey, data: bytes) -> None:
        """Record the input."""
        if key.task in self.machine.deaf:
            message = f"{key.task} does not listen"
            raise UnavailableError(message)
        self.machine.typed.append((key, data))

    async def resize(self, key: TaskKey, rows: int, columns: int) -> None:
        """Do nothing: there is no terminal."""

    async def inside(self, key: TaskKey) -> TaskSite:
        """Return an environment that identifies the task."""
        return TaskSite("/", {"TASK": key.task})

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """Return 1.5 cores and 1 GiB for each running task."""
        return {key: TaskUsage(1.5, 1 << 30) for key in keys if key in self.machine.running}

    def end(self, key: TaskKey, ending: TaskExit) -> None:
        """End a running task with this exit."""
        if key in self.machine.running:
            self.machine.running.discard(key)
            self.machine.ended[key] = ending
            self._wake()

    def _start(self, job: JobState, key: TaskKey) -> None:
        if key in self.machine.running or key in self.machine.ended:
            return
        self.machine.started.append(key)
        self.machine.times[key] = self.clock.now()
        self.machine.running.add(key)
        command = job.spec.roles[key.role].command
        if command[0] == "exit":
            self.end(key, TaskExit(int(command[1])))

    def _look(self, key: TaskKey) -> TaskReport:
        if key in self.machine.running:
            return TaskReport(key, TaskPhase.RUNNING, started=self.machine.times[key], address="127.0.0.1:20000")
        ending = self.machine.ended.get(key)
        if ending is None:
            return TaskReport(key, TaskPhase.PENDING, ready=key in self.created)
        phase = TaskPhase.STOPPED if ending.by_us else TaskPhase.SUCCEEDED if ending.code == 0 else TaskPhase.FAILED
        return TaskReport(key, phase, started=self.machine.times[key], finished=self.clock.now(), exit=ending)
