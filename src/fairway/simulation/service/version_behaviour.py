"""Behaviour of a simulated version."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VersionBehaviour:
    """Behaviour of the replicas of one version."""

    rate: float = 10.0
    """Requests per busy second."""
    spread: float = 0.3
    """Spread of the durations of single answers: the standard deviation of their logarithm."""
    cold_start: float = 2.0
    """Seconds from the start of a replica until it is ready."""
    errors: float = 0.0
    """Part of its answers that fail."""
    refused: float = 0.0
    """Part of its answers that are client errors (4xx)."""
    good: float = 0.95
    """Part of its answers that are right; reported as the metric `accuracy`."""
    cpu: float = 1.0
    """Part of its cores that it uses while it is busy."""
    memory: float = 0.5
    """Part of its memory that it uses."""
    leak: float = 0.0
    """Additional memory of a replica after each answer; a replica that uses all of its memory is killed."""
    cache: tuple[float, float] = (0.0, 1.0)
    """Additional memory that a replica comes to use with time, and the number of answers after which about two thirds of it are
    used."""
    fragile: float = 0.0
    """Probability that an answer ends its replica."""
    non_finite: float = 0.0
    """Part of its answers with NaN or infinity."""
    differs: float = 0.0
    """Part of its answers to copies that differ from the client's answer."""
    reclassified: float = 0.0
    """Part of its answers to copies that name another class."""
    relaid: float = 0.0
    """Part of its answers to copies with other names, types or shapes."""
    restored: float = 0.0
    """Part of its answers to copies with a number where the client's answer has NaN or infinity."""
    crashes: bool = False
    """Whether a replica ends by itself instead of becoming ready."""
    hangs: bool = False
    """Whether a replica never becomes ready."""
