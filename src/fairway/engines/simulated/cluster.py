"""The simulated machines: what runs on them, and what happens as time passes. They outlive the engines that use them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from fairway.engines.simulated.attempt_progress import AttemptProgress, SimulatedCheckpoint
from fairway.engines.simulated.node_capacity import NodeCapacity
from fairway.engines.simulated.task_behaviour import Script, TaskBehaviour
from fairway.engines.simulated.virtual_clock import VirtualClock
from fairway.plan.task_expansion import smallest_sizes
from fairway.spec.job import RestartScope
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode
from fairway.state.phase import TaskPhase
from fairway.state.task import Task, TaskExit, TaskKey, TaskReport

NO_PROGRAM = 127
TERMINATED, KILLED = 15, 9
FIRST_PORT = 20000


@dataclass(frozen=True, slots=True)
class TaskEnding:
    """How a task will end, unless another event comes first."""

    at: float
    phase: TaskPhase
    exit: TaskExit | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class WorkLoss:
    """Work that has to be repeated because an attempt was cut short."""

    run: JobKey
    attempt: int
    at: float
    seconds: float
    """Seconds of running time."""


@dataclass(slots=True)
class SimulatedTask:
    """One attempt of a task."""

    key: TaskKey
    behaviour: TaskBehaviour
    ready_at: float
    phase: TaskPhase = TaskPhase.PENDING
    started: float | None = None
    address: str | None = None
    task: Task | None = None
    """The task as it was bound."""
    effort: AttemptProgress | None = None
    next: TaskEnding | None = None
    end: TaskEnding | None = None

    @property
    def due(self) -> float | None:
        """The time of its next own event."""
        if self.next is not None:
            return self.next.at
        return self.ready_at if self.phase is TaskPhase.PENDING else None

    def report(self, now: float) -> TaskReport:
        """Return the state that an engine observes."""
        if self.end is not None:
            end = self.end
            return TaskReport(self.key, end.phase, None, self.address, self.started, end.at, end.exit, end.message)
        if self.phase is TaskPhase.RUNNING:
            return TaskReport(self.key, self.phase, address=self.address, started=self.started)
        ready = now >= self.ready_at
        return TaskReport(self.key, self.phase, ready=ready, message="" if ready else "preparing code and environment")


@dataclass(slots=True)
class SimulatedRun:
    """The state of a run."""

    lives: dict[TaskKey, SimulatedTask] = field(default_factory=dict)
    efforts: dict[int, AttemptProgress] = field(default_factory=dict)
    """By attempt."""
    told: int = 0
    """The step that was reported last."""
    logs_gone: bool = False

    def saved(self, now: float) -> SimulatedCheckpoint | None:
        """Return the newest checkpoint."""
        return self.efforts[max(self.efforts)].saved(now) if self.efforts else None


class SimulatedCluster:
    """Nodes, tasks and their clock. Deterministic: the same calls give the same history."""

    def __init__(self, nodes: Iterable[ClusterNode], script: Script, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.room = NodeCapacity(nodes)
        self.runs: dict[JobKey, SimulatedRun] = {}
        self.starts: Counter[TaskKey] = Counter()
        self.losses: list[WorkLoss] = []
        self.refusals: list[str] = []
        """Why gangs could not be bound: a planner that tracks what is taken causes none."""
        self.listeners: list[Callable[[], None]] = []
        self._script = script
        self._times: list[tuple[float, TaskKey]] = []

    def next_change(self) -> float | None:
        """Return the time of the next event; None when there is none."""
        while self._times:
            at, key = self._times[0]
            life = self._find(key)
            if life is not None and at == life.due:
                return at
            heapq.heappop(self._times)
        return None

    def pass_to(self, time: float) -> None:
        """Let all events up to that time happen, in order, and notify the engines."""
        happened = False
        while (at := self.next_change()) is not None and at <= time:
            _, key = heapq.heappop(self._times)
            self.clock.move_to(at)
            life = self._find(key)
            if life is not None and life.next is not None and life.next.at <= at:
                self._finish(life, life.next)
            happened = True
        self.clock.move_to(time)
        if happened:
            self.tell()

    def tell(self) -> None:
        """Notify all engines."""
        for listener in self.listeners:
            listener()

    def put_node(self, node: ClusterNode) -> None:
        """Add or change a node."""
        self.room.nodes[node.name] = node
        self.tell()

    def lose_node(self, name: str) -> None:
        """Remove a node; its tasks are lost."""
        for life in [life for run in self.runs.values() for life in run.lives.values() if life.phase is TaskPhase.RUNNING]:
            if life.task is not None and life.task.node == name:
                self._finish(life, TaskEnding(self.clock.now(), TaskPhase.LOST, message=f"node {name} is gone"))
        del self.room.nodes[name]
        self.tell()

    def look(self, key: TaskKey) -> TaskReport:
        """Return the state of a task. A task that was never created, or was forgotten, is lost."""
        life = self._find(key)
        return TaskReport(key, TaskPhase.LOST) if life is None else life.report(self.clock.now())

    def create(self, job: JobState, task: Task) -> None:
        """Create the task, if it does not exist."""
        run = self.runs.setdefault(job.key, SimulatedRun())
        if task.key not in run.lives:
            behaviour = self._script(job, task.key)
            life = run.lives[task.key] = SimulatedTask(task.key, behaviour, self.clock.now() + behaviour.preparing)
            if behaviour.preparing:
                heapq.heappush(self._times, (life.ready_at, task.key))

    def bind(self, job: JobState, tasks: Sequence[Task]) -> str:
        """Start all of the tasks or none; return the reason for none. They must be pending and ready."""
        why = self.room.take(job, tasks)
        if why:
            self.refusals.append(why)
            return why
        for task in tasks:
            self._begin(job, task)
        return ""

    def evict(self, key: TaskKey, grace: float) -> None:
        """Ask the task to leave, and kill it after the grace period."""
        life = self._find(key)
        if life is None or life.end is not None:
            return
        now, wants = self.clock.now(), life.behaviour.leaves_after
        if life.phase is TaskPhase.PENDING:
            self._finish(life, TaskEnding(now, TaskPhase.STOPPED, message="never started"))
            return
        goes = wants <= grace and grace > 0
        killed = TaskExit(None, TERMINATED if goes else KILLED, by_us=True)
        ending = TaskEnding(now + min(wants, grace), TaskPhase.STOPPED, killed)
        self._halt(life, saves=goes and life.behaviour.saves_on_leaving)
        if life.next is None or ending.at < life.next.at:
            self._expect(life, ending)

    def nudge(self, key: TaskKey) -> None:
        """Ask the task to end by itself, as if its work was done."""
        life = self._find(key)
        if life is not None and life.phase is TaskPhase.RUNNING and life.behaviour.leaves_after < inf:
            at = self.clock.now() + life.behaviour.leaves_after
            if life.next is None or at < life.next.at:
                self._expect(life, TaskEnding(at, TaskPhase.SUCCEEDED, TaskExit(0)))

    def forget(self, key: JobKey) -> None:
        """Forget a run."""
        run = self.runs.pop(key, None)
        for life in run.lives.values() if run is not None else ():
            self.room.give(life.key)

    def _find(self, key: TaskKey) -> SimulatedTask | None:
        run = self.runs.get(key.run)
        return run.lives.get(key) if run is not None else None

    def _begin(self, job: JobState, task: Task) -> None:
        run, now = self.runs[job.key], self.clock.now()
        life = run.lives[task.key]
        self.starts[task.key] += 1
        life.task, life.started, life.phase = task, now, TaskPhase.RUNNING
        life.address = f"{task.node}:{FIRST_PORT + self.starts.total()}"
        effort = run.efforts.get(task.key.attempt)
        if effort is None:
            effort = AttemptProgress(
                began=now + life.behaviour.startup,
                before=run.saved(now),
                speed=_speed(job),
                every=life.behaviour.checkpoint_every,
                alone=job.spec.restart.scope is RestartScope.TASK,
            )
            run.efforts[task.key.attempt] = effort
        life.effort = effort
        ending = _natural(life, effort, now)
        if ending is not None:
            self._expect(life, ending)

    def _expect(self, life: SimulatedTask, ending: TaskEnding) -> None:
        if ending.at <= self.clock.now():
            self._finish(life, ending)
            return
        life.next = ending
        heapq.heappush(self._times, (ending.at, life.key))

    def _finish(self, life: SimulatedTask, ending: TaskEnding) -> None:
        life.end, life.next, life.phase = ending, None, ending.phase
        self.room.give(life.key)
        if ending.phase is TaskPhase.SUCCEEDED and life.effort is not None:
            life.effort.finished = True
        elif ending.phase is not TaskPhase.SUCCEEDED:
            self._halt(life)

    def _halt(self, life: SimulatedTask, *, saves: bool = False) -> None:
        effort, now = life.effort, self.clock.now()
        if effort is None:
            return
        others = [other for other in self.runs[life.key.run].lives.values() if other.effort is effort and other.end is None]
        if effort.alone and others:
            return
        lost_seconds = effort.halt(now, saves=saves)
        if lost_seconds > 0:
            self.losses.append(WorkLoss(life.key.run, life.key.attempt, now, lost_seconds))
        for other in others:
            # The remaining tasks wait for this one forever, until they are told to leave.
            if other.next is not None and not (other.next.exit and other.next.exit.by_us):
                other.next = None


def _speed(job: JobState) -> float:
    """Return the gang's speed relative to its least size."""
    least = sum(smallest_sizes(job.spec).values())
    return max(1.0, sum(job.sizes.values()) / least) if least else 1.0


def _natural(life: SimulatedTask, effort: AttemptProgress, now: float) -> TaskEnding | None:
    """Return how the task ends without outside events."""
    behaviour = life.behaviour
    if behaviour.missing:
        return TaskEnding(now, TaskPhase.FAILED, TaskExit(NO_PROGRAM), "its program does not exist")
    if effort.halted < inf:
        return None
    works_until = effort.began + effort.left_of(behaviour.work)
    phase = TaskPhase.SUCCEEDED if behaviour.exit_code == 0 else TaskPhase.FAILED
    endings = [
        TaskEnding(works_until, phase, TaskExit(behaviour.exit_code)),
        TaskEnding(now + behaviour.fails_after, TaskPhase.FAILED, TaskExit(1)),
        TaskEnding(now + behaviour.lost_after, TaskPhase.LOST, None, "nobody knows what became of it"),
    ]
    first = min(endings, key=lambda way: way.at)
    return first if first.at < inf else None
