"""Everything that an engine can be told. Placing and starting are two acts; engines perform each at most once."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.state.job import Job, JobKey
from fairway.state.task import Task, TaskKey


@dataclass(frozen=True, slots=True)
class CreateTask:
    """Make the task exist: folder or pod, code and environment. It does not run yet."""

    job: Job
    task: Task


@dataclass(frozen=True, slots=True)
class BindGang:
    """Give these tasks, all or none, their nodes and devices, and let them run.

    `tasks` carry node and devices. `peers` are the tasks of the run that run already
    (a task started again alone must learn their addresses).
    """

    job: Job
    tasks: tuple[Task, ...]
    peers: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True)
class EvictTask:
    """End the task: SIGTERM, then SIGKILL after `grace` seconds. Grace 0 kills at once."""

    key: TaskKey
    grace: float
    reason: str
    ask: bool = False
    """First let `should_stop()` turn true; SIGTERM waits for programs that ask it, for most of the grace."""


@dataclass(frozen=True, slots=True)
class NudgeTask:
    """Tell the task to end by itself soon (`should_stop()` turns true); an eviction follows if it does not."""

    key: TaskKey
    reason: str


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """Remove everything that the engine keeps of a run: folders, logs, checkpoints."""

    key: JobKey


@dataclass(frozen=True, slots=True)
class ForgetLogs:
    """Remove what the tasks of a run printed; checkpoints and outputs stay."""

    key: JobKey


Action = CreateTask | BindGang | EvictTask | NudgeTask | ForgetJob | ForgetLogs


def run_of(action: Action) -> JobKey:
    """The run that an action is about."""
    match action:
        case CreateTask() | BindGang():
            return action.job.key
        case EvictTask() | NudgeTask():
            return action.key.run
        case ForgetJob() | ForgetLogs():
            return action.key
