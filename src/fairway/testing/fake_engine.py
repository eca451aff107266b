"""An engine without processes: for fast tests of the loop and of what stands on it.

A task's command says how it goes: `["exit", "3"]` ends at once with 3, `["stay"]` runs until it is evicted
or a test ends it. Everything an engine would keep on disk is kept in `FakeMachine`, so that an engine
thrown away and made anew over the same machine shows what a restart of the daemon would.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fairway.app.ports import Clock, LogChunk, LogQuery, Observation, TaskInside, TaskUsage
from fairway.errors import UnavailableError
from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, ForgetLogs, NudgeTask
from fairway.state.job import Job, JobKey
from fairway.state.node import Node
from fairway.state.phase import TaskPhase
from fairway.state.task import Exit, TaskKey, TaskReport


@dataclass(slots=True)
class FakeMachine:
    """What outlives an engine: what was started, and how it ended."""

    node: Node = Node("here", cpu=4.0, memory=8 << 30)
    running: set[TaskKey] = field(default_factory=set)
    ended: dict[TaskKey, Exit] = field(default_factory=dict)
    started: list[TaskKey] = field(default_factory=list)
    times: dict[TaskKey, float] = field(default_factory=dict)
    """When each was started."""
    forgotten: list[JobKey] = field(default_factory=list)
    logs_forgotten: list[JobKey] = field(default_factory=list)
    nudged: list[TaskKey] = field(default_factory=list)
    typed: list[tuple[TaskKey, bytes]] = field(default_factory=list)
    deaf: set[str] = field(default_factory=set)
    """The tasks that take no input."""
    observations: list[Observation] = field(default_factory=list)
    """Handed out by the next `measure`."""


class FakeEngine:
    """The `Engine` port over a `FakeMachine`."""

    def __init__(self, machine: FakeMachine, clock: Clock) -> None:
        self.machine = machine
        self.clock = clock
        self.created: set[TaskKey] = set()
        self._wake: Callable[[], None] = lambda: None

    async def start(self, wake: Callable[[], None]) -> None:
        """Begin."""
        self._wake = wake

    async def close(self) -> None:
        """Let go."""

    async def nodes(self) -> tuple[Node, ...]:
        """The one node."""
        return (self.machine.node,)

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        """Do it."""
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
                    self.end(key, Exit(None, 15, by_us=True))
                case NudgeTask(key=key):
                    self.machine.nudged.append(key)
                case ForgetJob(key=job_key):
                    self.machine.forgotten.append(job_key)
                case ForgetLogs(key=job_key):
                    self.machine.logs_forgotten.append(job_key)
        return reports

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """What is known."""
        return [self._look(key) for key in keys]

    async def measure(self, jobs: Iterable[Job]) -> list[Observation]:
        """What a test put there."""
        wanted = {job.key for job in jobs}
        found = [seen for seen in self.machine.observations if seen.key in wanted]
        self.machine.observations = [seen for seen in self.machine.observations if seen.key not in wanted]
        return found

    async def logs(self, job: Job, query: LogQuery) -> AsyncIterator[LogChunk]:
        """One line for each task that was started."""
        for key in self.machine.started:
            if key.run == job.key and query.role in ("", key.role):
                yield LogChunk(key.task, key.attempt, f"hello from {key.task}\n".encode())

    async def kept(self) -> list[JobKey]:
        """The runs that were started and not forgotten."""
        return sorted({key.run for key in self.machine.started} - set(self.machine.forgotten))

    def release(self, key: JobKey) -> None:
        """Nothing is kept in memory."""

    async def type_in(self, key: TaskKey, data: bytes) -> None:
        """Remember what was typed."""
        if key.task in self.machine.deaf:
            message = f"{key.task} does not listen"
            raise UnavailableError(message)
        self.machine.typed.append((key, data))

    async def resize(self, key: TaskKey, rows: int, columns: int) -> None:
        """There is no window."""

    async def inside(self, key: TaskKey) -> TaskInside:
        """A place that says whose it is."""
        return TaskInside("/", {"TASK": key.task})

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """Each that runs uses one and a half cores and a gibibyte."""
        return {key: TaskUsage(1.5, 1 << 30) for key in keys if key in self.machine.running}

    def end(self, key: TaskKey, ending: Exit) -> None:
        """A task ends."""
        if key in self.machine.running:
            self.machine.running.discard(key)
            self.machine.ended[key] = ending
            self._wake()

    def _start(self, job: Job, key: TaskKey) -> None:
        if key in self.machine.running or key in self.machine.ended:
            return
        self.machine.started.append(key)
        self.machine.times[key] = self.clock.now()
        self.machine.running.add(key)
        command = job.spec.roles[key.role].command
        if command[0] == "exit":
            self.end(key, Exit(int(command[1])))

    def _look(self, key: TaskKey) -> TaskReport:
        if key in self.machine.running:
            return TaskReport(key, TaskPhase.RUNNING, started=self.machine.times[key], address="127.0.0.1:20000")
        ending = self.machine.ended.get(key)
        if ending is None:
            return TaskReport(key, TaskPhase.PENDING, ready=key in self.created)
        phase = TaskPhase.STOPPED if ending.by_us else TaskPhase.SUCCEEDED if ending.code == 0 else TaskPhase.FAILED
        return TaskReport(key, phase, started=self.machine.times[key], finished=self.clock.now(), exit=ending)
