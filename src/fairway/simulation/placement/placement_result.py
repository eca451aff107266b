"""Results of placement simulations, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DecisionSpeed:
    """Speed of decisions, in CPU time of this process."""

    decisions: int
    per_second: float
    p50_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class RejectionCount:
    """Number of tasks of a kind that arrived, and that were rejected."""

    arrived: int
    rejected: int


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """Result of filling a cluster: no task left, and tasks that did not fit were rejected."""

    policy: str
    mix: str
    nodes: int
    gpus: int
    curve: dict[int, float]
    """Percent of GPUs allocated, by percent of GPUs that have arrived; the mean over the arrivals of that percent."""
    fragmentation: dict[int, float]
    """Mean percent of idle GPUs that tasks of the mix could not use, at the same points."""
    allocated: float
    """Percent of GPUs allocated at the end."""
    kinds: dict[str, RejectionCount]
    """By kind: `cpu`, `share`, and `N-gpu`."""
    pace: DecisionSpeed


@dataclass(frozen=True, slots=True)
class ChurnResult:
    """Result of a cluster with arrivals and departures; tasks that did not fit were rejected."""

    policy: str
    mix: str
    load: float
    """Offered GPUs divided by the existing GPUs."""
    seed: int
    allocation: float
    """Mean percent of allocated GPUs over time."""
    rejected_gpus: float
    """Percent of the offered GPUs that were rejected."""
    kinds: dict[str, RejectionCount]
    pace: DecisionSpeed
    series: list[tuple[float, float]] = field(default_factory=list)
    """Time (in lifetimes) and percent allocated, about a hundred points."""
