"""All that a planner may look at, at one instant."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.state.job import Job, JobKey
from fairway.state.node import Node
from fairway.state.task import Task, TaskKey


@dataclass(slots=True)
class Snapshot:
    """Runs that are not over, their tasks, and the nodes. Planners read it; only the loop changes it."""

    jobs: dict[JobKey, Job] = field(default_factory=dict)
    tasks: dict[JobKey, dict[TaskKey, Task]] = field(default_factory=dict)
    """The tasks of each run, of the current attempts and of those that are not over yet."""
    nodes: tuple[Node, ...] = ()

    def tasks_of(self, key: JobKey) -> list[Task]:
        """The tasks of a run in order of role, index and attempt."""
        found = self.tasks.get(key, {})
        return [found[name] for name in sorted(found)]

    def put_job(self, job: Job) -> None:
        """Take a new value of a run."""
        self.jobs[job.key] = job
        self.tasks.setdefault(job.key, {})

    def put_task(self, task: Task) -> None:
        """Take a new value of a task."""
        self.tasks.setdefault(task.key.run, {})[task.key] = task

    def forget(self, key: JobKey) -> None:
        """Drop a run that is over."""
        self.jobs.pop(key, None)
        self.tasks.pop(key, None)
