"""The behaviour of simulated tasks: how long they last, how they end, what they save, and how they react to stop requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from fairway.state.job import JobState
from fairway.state.task import TaskKey


@dataclass(frozen=True, slots=True)
class TaskBehaviour:
    """The behaviour of one attempt of a task. All times are in seconds."""

    work: float = inf
    """The work of its run, at the gang's least size; a larger gang is faster in proportion. Endless by default."""
    exit_code: int = 0
    """The exit code when the work is done."""
    fails_after: float = inf
    """The task exits with 1 after running that long, whatever work remains."""
    lost_after: float = inf
    """The task is lost after it has run that long."""
    preparing: float = 0.0
    """Time until its code and environment are ready."""
    startup: float = 0.0
    """Time from the start to the first useful work, on every start."""
    checkpoint_every: float = 0.0
    """Time between two checkpoints; 0 saves none."""
    leaves_after: float = 0.0
    """Time that it takes to leave on request; infinite for a task that ignores requests."""
    saves_on_leaving: bool = False
    """Whether it saves a checkpoint when it is asked to leave, and gets the time to do so."""
    missing: bool = False
    """Whether its program does not exist."""
    prints: str = ""
    """All its output, printed as soon as it runs."""


Script = Callable[[JobState, TaskKey], TaskBehaviour]
"""Returns the behaviour of an attempt."""
