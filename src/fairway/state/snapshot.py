"""Snapshot: all the state that a planner may read, at one instant."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode
from fairway.state.queue import Queue
from fairway.state.task import Task, TaskKey


@dataclass(slots=True)
class PlannerSnapshot:
    """Runs that are not over, their tasks, and the nodes. Planners read it; only the control loop changes it."""

    jobs: dict[JobKey, JobState] = field(default_factory=dict)
    tasks: dict[JobKey, dict[TaskKey, Task]] = field(default_factory=dict)
    """The tasks of each run: those of the current attempt, and earlier ones that are not over yet."""
    nodes: tuple[ClusterNode, ...] = ()
    holding: dict[TaskKey, Task] = field(default_factory=dict)
    """The tasks that occupy room on a node; maintained by `put_task`."""
    versions: dict[JobKey, int] = field(default_factory=dict)
    """Version of each run, incremented with every change of the run or of one of its tasks; in the order of the last change."""
    tick: int = 0
    """The newest version."""
    forgotten: int = 0
    """Number of runs that were dropped."""
    queues: dict[str, Queue] = field(default_factory=dict)
    """The queues described by documents; a missing queue is treated like one with an empty document."""
    memory: bytes = b""
    """Serialized state of the scheduler; empty at first."""

    def tasks_of(self, key: JobKey) -> list[Task]:
        """Return the tasks of a run in order of role, index and attempt."""
        tasks = self.tasks.get(key, {})
        return [tasks[name] for name in sorted(tasks)]

    def put_job(self, job: JobState) -> None:
        """Store a new value of a run."""
        self.jobs[job.key] = job
        self.tasks.setdefault(job.key, {})
        self._changed(job.key)

    def put_task(self, task: Task) -> None:
        """Store a new value of a task."""
        run = task.key.run
        self.tasks.setdefault(run, {})[task.key] = task
        self._changed(run)
        if task.phase.holds_resources:
            self.holding[task.key] = task
        else:
            self.holding.pop(task.key, None)

    def forget(self, key: JobKey) -> None:
        """Drop a run that is over."""
        self.forgotten += 1
        self.jobs.pop(key, None)
        self.versions.pop(key, None)
        for task in self.tasks.pop(key, {}):
            self.holding.pop(task, None)

    def changed_since(self, tick: int) -> list[JobKey]:
        """Return the runs with a newer version than `tick`."""
        changed = []
        for key, version in reversed(self.versions.items()):
            if version <= tick:
                break
            changed.append(key)
        return changed

    def _changed(self, key: JobKey) -> None:
        self.tick += 1
        self.versions.pop(key, None)
        self.versions[key] = self.tick

    def copy(self) -> PlannerSnapshot:
        """Return a copy with the same values, for what-if planning."""
        tasks = {key: dict(own) for key, own in self.tasks.items()}
        return PlannerSnapshot(
            dict(self.jobs),
            tasks,
            self.nodes,
            dict(self.holding),
            dict(self.versions),
            self.tick,
            self.forgotten,
            dict(self.queues),
            self.memory,
        )
