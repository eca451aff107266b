"""The result of planning: new values to record, and actions for the engine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from fairway.plan.action import Action, run_of
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.snapshot import PlannerSnapshot
from fairway.state.task import Task, TaskKey


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """One planning result. Record `jobs`, `tasks` and `events` first, then perform `actions`."""

    jobs: tuple[JobState, ...] = ()
    tasks: tuple[Task, ...] = ()
    actions: tuple[Action, ...] = ()
    events: tuple[RunEvent, ...] = ()
    deleted: tuple[JobKey, ...] = ()
    """Runs to remove after the actions."""
    memory: bytes | None = None
    """The scheduler's new encoded memory; None when unchanged."""
    wake_at: float | None = None
    """Plan again at this time even if nothing changes before."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to record and nothing to do."""
        return not (self.jobs or self.tasks or self.actions or self.events or self.deleted or self.memory is not None)

    def without(self, runs: Collection[JobKey]) -> EnginePlan:
        """Return the plan without the values, actions and events of these runs."""
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
class EnginePlanDraft:
    """A plan under construction: reads through to the snapshot and collects changes. Never modifies the snapshot."""

    snapshot: PlannerSnapshot
    now: float
    cause_within: float = 0.0
    """Seconds within which the engine may still report how a lost peer ended; 0 when it reports that at once."""
    jobs: dict[JobKey, JobState] = field(default_factory=dict)
    tasks: dict[JobKey, dict[TaskKey, Task]] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)
    deleted: list[JobKey] = field(default_factory=list)
    memory: bytes | None = None
    wake_at: float | None = None

    @property
    def capacity_cpu(self) -> float:
        """Cores of the largest node."""
        return max((node.cpu for node in self.snapshot.nodes), default=0.0)

    def job(self, key: JobKey) -> JobState:
        """Return the run with the draft's changes."""
        return self.jobs.get(key) or self.snapshot.jobs[key]

    def tasks_of(self, key: JobKey) -> list[Task]:
        """Return the run's tasks with the draft's changes, sorted by key."""
        tasks = {**self.snapshot.tasks.get(key, {}), **self.tasks.get(key, {})}
        return [tasks[name] for name in sorted(tasks)]

    def put_job(self, job: JobState) -> None:
        """Set a run's new value."""
        if self.snapshot.jobs.get(job.key) == job:
            self.jobs.pop(job.key, None)
        else:
            self.jobs[job.key] = job

    def put_task(self, task: Task) -> None:
        """Set a task's new value."""
        self.tasks.setdefault(task.key.run, {})[task.key] = task

    def tell(self, subject: object, reason: str, message: str) -> None:
        """Record an event that users can read."""
        self.events.append(RunEvent(self.now, str(subject), reason, message))

    def wake(self, at: float) -> None:
        """Request planning at this time or earlier."""
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)

    def finish(self) -> EnginePlan:
        """Return the plan."""
        tasks = tuple(task for group in self.tasks.values() for task in group.values())
        jobs, actions, events = tuple(self.jobs.values()), tuple(self.actions), tuple(self.events)
        return EnginePlan(jobs, tasks, actions, events, tuple(self.deleted), self.memory, self.wake_at)
