"""Signs of life of a running run: what its processes did lately, and whether it seems to hang."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankSight:
    """One look at one rank of a run."""

    name: str
    """`worker-1`; `worker-0.1` for the second process of a task; `worker-0 rank 3` for what a launcher started."""
    cpu_seconds: float
    """Processor time of all its processes since they started."""
    printed: float | None = None
    """When its log was written to last; None: never."""
    computes: bool = False
    """Whether its devices are busy, which counts as use of CPU."""
    wakeups: int | None = None
    """How often the kernel ran the main threads of its processes; it grows while a rank polls. None: not known."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A run that seems to hang: nothing printed and nothing reported for too long, and some ranks do nothing at all."""

    since: float
    """When something was printed or reported last."""
    idle: tuple[str, ...] = ()
    """Ranks that used no CPU since. Where that is true of all and some poll, those that did not run at all."""
    busy: tuple[str, ...] = ()
    """The other ranks: they wait in a loop, poll, or compute."""
    step_seconds: float | None = None
    """How long a step took before, where steps are reported."""
