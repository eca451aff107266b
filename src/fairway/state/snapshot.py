"""All that a planner may look at, at one instant."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.state.job import Job, JobKey
from fairway.state.node import Node
from fairway.state.queue import Queue
from fairway.state.task import Task, TaskKey


@dataclass(slots=True)
class Snapshot:
    """Runs that are not over, their tasks, and the nodes. Planners read it; only the loop changes it."""

    jobs: dict[JobKey, Job] = field(default_factory=dict)
    tasks: dict[JobKey, dict[TaskKey, Task]] = field(default_factory=dict)
    """The tasks of each run, of the current attempts and of those that are not over yet."""
    nodes: tuple[Node, ...] = ()
    holding: dict[TaskKey, Task] = field(default_factory=dict)
    """The tasks that hold room on a node; kept by `put_task`."""
    versions: dict[JobKey, int] = field(default_factory=dict)
    """Rises with every new value of a run or of one of its tasks; those that changed last come last."""
    tick: int = 0
    """The newest version."""
    forgotten: int = 0
    """How many runs were dropped."""
    queues: dict[str, Queue] = field(default_factory=dict)
    """The queues that documents describe; a queue that is not here is as if described by an empty one."""
    memory: bytes = b""
    """What the scheduler remembers, in its own words; empty at first."""

    def tasks_of(self, key: JobKey) -> list[Task]:
        """The tasks of a run in order of role, index and attempt."""
        found = self.tasks.get(key, {})
        return [found[name] for name in sorted(found)]

    def put_job(self, job: Job) -> None:
        """Take a new value of a run."""
        self.jobs[job.key] = job
        self.tasks.setdefault(job.key, {})
        self._changed(job.key)

    def put_task(self, task: Task) -> None:
        """Take a new value of a task."""
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
        """The runs with a newer version than that."""
        found = []
        for key, version in reversed(self.versions.items()):
            if version <= tick:
                break
            found.append(key)
        return found

    def _changed(self, key: JobKey) -> None:
        self.tick += 1
        self.versions.pop(key, None)
        self.versions[key] = self.tick

    def copy(self) -> Snapshot:
        """Another snapshot with the same values, for what-if."""
        tasks = {key: dict(own) for key, own in self.tasks.items()}
        return Snapshot(
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
