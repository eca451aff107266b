"""How a simulated version behaves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Version:
    """What a replica of it does."""

    rate: float = 10.0
    """Requests a busy second."""
    spread: float = 0.3
    """How far the times of single answers lie apart: the deviation of their logarithm."""
    cold_start: float = 2.0
    """Seconds from the start of a replica until it is ready."""
    errors: float = 0.0
    """The part of its answers that fail."""
    refused: float = 0.0
    """The part of its answers that are client errors (4xx)."""
    good: float = 0.95
    """The part of its answers that turn out right; reported as the metric `accuracy`."""
    cpu: float = 1.0
    """What it uses of its cores while it is busy."""
    memory: float = 0.5
    """What it holds of its memory."""
    leak: float = 0.0
    """What a replica holds more after each answer; with all of its memory it is killed."""
    cache: tuple[float, float] = (0.0, 1.0)
    """What a replica comes to hold more with time, and the answers after which about two thirds of it are there."""
    fragile: float = 0.0
    """The chance with which an answer ends its replica."""
    non_finite: float = 0.0
    """The part of its answers that hold NaN or infinity."""
    differs: float = 0.0
    """The part of its answers to copies that differ from the client's answer."""
    reclassified: float = 0.0
    """The part of them that name another class."""
    relaid: float = 0.0
    """The part of them with other names, types or shapes."""
    restored: float = 0.0
    """The part of them with a number where the client's answer has NaN or infinity."""
    crashes: bool = False
    """Ends by itself instead of becoming ready."""
    hangs: bool = False
    """Never becomes ready."""
