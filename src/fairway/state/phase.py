"""Phases of tasks and jobs, and the legal transitions, as data."""

from __future__ import annotations

from enum import StrEnum


class TaskPhase(StrEnum):
    """Phase of a task."""

    PENDING = "Pending"
    PLACED = "Placed"
    STARTING = "Starting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    STOPPED = "Stopped"

    @property
    def over(self) -> bool:
        """Whether the task will never run again under this attempt."""
        return self in TASK_OVER

    @property
    def holds_resources(self) -> bool:
        """Whether the task occupies room on a node."""
        return self in TASK_HOLDS


TASK_HOLDS = frozenset({TaskPhase.PLACED, TaskPhase.STARTING, TaskPhase.RUNNING})
TASK_OVER = frozenset({TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.LOST, TaskPhase.STOPPED})

TASK_MOVES: dict[TaskPhase, frozenset[TaskPhase]] = {
    TaskPhase.PENDING: frozenset({TaskPhase.PLACED, TaskPhase.FAILED, TaskPhase.STOPPED}),
    TaskPhase.PLACED: frozenset({TaskPhase.PENDING, TaskPhase.STARTING, TaskPhase.RUNNING, *TASK_OVER}),
    TaskPhase.STARTING: frozenset({TaskPhase.RUNNING, *TASK_OVER}),
    TaskPhase.RUNNING: TASK_OVER,
    TaskPhase.SUCCEEDED: frozenset(),
    TaskPhase.FAILED: frozenset(),
    TaskPhase.LOST: frozenset(),
    TaskPhase.STOPPED: frozenset(),
}


class JobPhase(StrEnum):
    """Phase of a run."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def over(self) -> bool:
        """Whether the run has ended. A stopped run may be resumed."""
        return self in JOB_OVER


JOB_OVER = frozenset({JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED})


class RunIntent(StrEnum):
    """Desired state of a run."""

    RUN = "run"
    STOP = "stop"
