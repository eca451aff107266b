"""The actions that a plan gives to an engine.

Creating a task and binding it are separate actions; engines perform each at most once.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairway.state.job import JobKey, JobState
from fairway.state.task import Task, TaskKey


@dataclass(frozen=True, slots=True)
class CreateTask:
    """Create the task: folder or pod, code and environment. It does not run yet."""

    job: JobState
    task: Task


@dataclass(frozen=True, slots=True)
class BindGang:
    """Bind these tasks, all or none, to their nodes and devices, and start them.

    `tasks` carry node and devices. `peers` are the tasks of the run that are running already
    (a task that is restarted alone needs their addresses).
    """

    job: JobState
    tasks: tuple[Task, ...]
    peers: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True)
class EvictTask:
    """End the task: SIGTERM, then SIGKILL after `grace` seconds. Grace 0 kills at once."""

    key: TaskKey
    grace: float
    reason: str
    ask: bool = False
    """First set `should_stop()`; for programs that poll it, SIGTERM is delayed for most of the grace period."""


@dataclass(frozen=True, slots=True)
class NudgeTask:
    """Set the task's `should_stop()` so that it ends by itself; an eviction follows if it does not."""

    key: TaskKey
    reason: str


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """Remove everything that the engine stores for a run: folders, logs, checkpoints."""

    key: JobKey


@dataclass(frozen=True, slots=True)
class ForgetLogs:
    """Remove the logs of a run's tasks; keep its checkpoints and outputs."""

    key: JobKey


Action = CreateTask | BindGang | EvictTask | NudgeTask | ForgetJob | ForgetLogs


def run_of(action: Action) -> JobKey:
    """Return the run that an action belongs to."""
    match action:
        case CreateTask() | BindGang():
            return action.job.key
        case EvictTask() | NudgeTask():
            return action.key.run
        case ForgetJob() | ForgetLogs():
            return action.key
