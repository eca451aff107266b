"""Activity of a run: what its processes did recently, and whether the run seems to hang."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankSample:
    """One sample of the activity of a rank."""

    name: str
    """`worker-1`; `worker-0.1` for the second process of a task; `worker-0 rank 3` for a process started by a launcher."""
    cpu_seconds: float
    """CPU time of all its processes since they started."""
    printed: float | None = None
    """Time of the last write to its log; None: never."""
    computes: bool = False
    """Whether its devices are busy, which counts as CPU use."""
    wakeups: int | None = None
    """How often the kernel scheduled the main threads of its processes. It grows while a rank polls. None: not known."""


@dataclass(frozen=True, slots=True)
class RunStall:
    """A run that seems to hang: no output and no reports for too long, and some ranks are idle."""

    since: float
    """Time of the last output or report."""
    idle: tuple[str, ...] = ()
    """Ranks that have used no CPU since then. If all ranks used none and some poll: the ranks that were not scheduled at all."""
    busy: tuple[str, ...] = ()
    """The other ranks, which wait in a loop, poll or compute."""
    step_seconds: float | None = None
    """Duration of a step before the stall, if steps are reported."""
