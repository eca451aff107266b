"""How simulated tasks behave: how long they last, how they end, what they save, and how they take a hint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from fairway.state.job import Job
from fairway.state.task import TaskKey


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One task at one attempt. All times are in seconds."""

    work: float = inf
    """What its run has to do, at the least size of the gang; a larger gang is faster in proportion. Without end by default."""
    exit_code: int = 0
    """With what it ends when the work is done."""
    fails_after: float = inf
    """It ends with 1 after running for so long, whatever is left to do."""
    lost_after: float = inf
    """Nobody knows what became of it after it has run for so long."""
    preparing: float = 0.0
    """Until its code and environment are there."""
    startup: float = 0.0
    """From the start to the first useful work, every time."""
    checkpoint_every: float = 0.0
    """Between two checkpoints; 0 saves none."""
    leaves_after: float = 0.0
    """How long it takes to leave when it is asked to; a task that takes no hint needs for ever."""
    saves_on_leaving: bool = False
    """Whether it saves once more when it is asked to leave, and is given the time that it needs."""
    missing: bool = False
    """Its program does not exist."""
    prints: str = ""
    """All that it ever prints, as soon as it runs."""


Script = Callable[[Job, TaskKey], Behaviour]
"""Who behaves how."""
