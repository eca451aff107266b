"""What a planner returns: the new values to remember, and what the engine is to do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from fairway.plan.action import Action, run_of
from fairway.state.event import Event
from fairway.state.job import Job, JobKey
from fairway.state.snapshot import Snapshot
from fairway.state.task import Task, TaskKey


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision. Remember `jobs`, `tasks` and `events` first, then perform `actions`."""

    jobs: tuple[Job, ...] = ()
    tasks: tuple[Task, ...] = ()
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    deleted: tuple[JobKey, ...] = ()
    """Runs to be forgotten, after the actions."""
    memory: bytes | None = None
    """What the scheduler remembers from now on; None: as before."""
    wake_at: float | None = None
    """Plan again at this time even if nothing is heard."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remember and nothing to do."""
        return not (self.jobs or self.tasks or self.actions or self.events or self.deleted or self.memory is not None)

    def without(self, runs: Collection[JobKey]) -> Plan:
        """The plan with nothing to remember and nothing to do for these runs."""
        if not runs:
            return self
        names = {str(run) for run in runs}
        return replace(
            self,
            jobs=tuple(job for job in self.jobs if job.key not in runs),
            tasks=tuple(task for task in self.tasks if task.key.run not in runs),
            actions=tuple(action for action in self.actions if run_of(action) not in runs),
            events=tuple(event for event in self.events if event.run not in names),
            deleted=tuple(key for key in self.deleted if key not in runs),
        )


@dataclass(slots=True)
class Draft:
    """A plan being made: reads through to the snapshot, collects what changes. Never touches the snapshot."""

    snapshot: Snapshot
    now: float
    cause_within: float = 0.0
    """Seconds in which an engine may yet say what became of a peer that is gone; 0: it has said so at once."""
    jobs: dict[JobKey, Job] = field(default_factory=dict)
    tasks: dict[JobKey, dict[TaskKey, Task]] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    deleted: list[JobKey] = field(default_factory=list)
    memory: bytes | None = None
    wake_at: float | None = None

    @property
    def capacity_cpu(self) -> float:
        """Cores of the largest node."""
        return max((node.cpu for node in self.snapshot.nodes), default=0.0)

    def job(self, key: JobKey) -> Job:
        """The run as the draft leaves it."""
        return self.jobs.get(key) or self.snapshot.jobs[key]

    def tasks_of(self, key: JobKey) -> list[Task]:
        """The run's tasks as the draft leaves them, in order."""
        known = {**self.snapshot.tasks.get(key, {}), **self.tasks.get(key, {})}
        return [known[name] for name in sorted(known)]

    def put_job(self, job: Job) -> None:
        """Give a run a new value."""
        if self.snapshot.jobs.get(job.key) == job:
            self.jobs.pop(job.key, None)
        else:
            self.jobs[job.key] = job

    def put_task(self, task: Task) -> None:
        """Give a task a new value."""
        self.tasks.setdefault(task.key.run, {})[task.key] = task

    def tell(self, subject: object, reason: str, message: str) -> None:
        """Record for people what happened."""
        self.events.append(Event(self.now, str(subject), reason, message))

    def wake(self, at: float) -> None:
        """Plan again at this time, or before."""
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)

    def finish(self) -> Plan:
        """The plan."""
        tasks = tuple(task for group in self.tasks.values() for task in group.values())
        jobs, actions, events = tuple(self.jobs.values()), tuple(self.actions), tuple(self.events)
        return Plan(jobs, tasks, actions, events, tuple(self.deleted), self.memory, self.wake_at)
