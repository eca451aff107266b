"""What a simulation of placement found, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Pace:
    """How long decisions took, in CPU time of this process."""

    decisions: int
    per_second: float
    p50_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class Turned:
    """Tasks of a kind: how many came, how many found no place."""

    arrived: int
    rejected: int


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """A cluster that was filled: nobody left, and who did not fit was turned away."""

    policy: str
    mix: str
    nodes: int
    gpus: int
    curve: dict[int, float]
    """Percent of GPUs allocated, by percent of GPUs that arrived so far; the mean over the arrivals of that percent."""
    fragmentation: dict[int, float]
    """Percent of idle GPUs that tasks of the mix could not use on the average, at the same points."""
    allocated: float
    """Percent, at the end."""
    kinds: dict[str, Turned]
    """`cpu`, `share`, and `N-gpu`."""
    pace: Pace


@dataclass(frozen=True, slots=True)
class ChurnResult:
    """A cluster where tasks come and go; who did not fit was turned away."""

    policy: str
    mix: str
    load: float
    """Offered GPUs over GPUs there are."""
    seed: int
    allocation: float
    """Percent of GPUs, the mean over time."""
    rejected_gpus: float
    """Percent of the offered GPUs that were turned away."""
    kinds: dict[str, Turned]
    pace: Pace
    series: list[tuple[float, float]] = field(default_factory=list)
    """Time (in lifetimes) and percent allocated, about a hundred points."""
