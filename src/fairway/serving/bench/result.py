"""What a load test found, as values; and where the knee is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Point:
    """What one number of connections came to."""

    connections: int
    seconds: float
    answered: int
    """With 2xx."""
    failed: int
    """With another status, or not at all."""
    latency: dict[int, float]
    """Seconds by percentile."""
    statuses: dict[int, int]
    """Answers by status; 0 stands for none."""
    offered: float = 0.0
    """Requests a second that were due, in an open loop; 0: each connection asked as soon as it was answered."""
    client_cpu: float = 0.0
    """The part of a core that the load generator used."""

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return self.answered / self.seconds if self.seconds > 0 else 0.0

    @property
    def power(self) -> float:
        """Answers a second, a second of waiting: it rises while more load brings more answers than it costs time."""
        p95 = self.latency.get(95, 0.0)
        return self.rate / p95 if p95 > 0 else 0.0


def point(
    connections: int,
    seconds: float,
    taken: Sequence[float],
    statuses: dict[int, int],
    *,
    offered: float = 0.0,
    client_cpu: float = 0.0,
) -> Point:
    """From the times of the good answers, and how many there were of each status."""
    ordered = sorted(taken)
    latency = (
        {percent: ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] for percent in PERCENTILES} if ordered else {}
    )
    failed = sum(statuses.values()) - len(ordered)
    return Point(connections, seconds, len(ordered), failed, latency, statuses, offered, client_cpu)


def knee(points: Sequence[Point]) -> Point | None:
    """Where more connections stop to pay: the point of the greatest power, among those without failures when there are any.

    None when nothing was answered, or when it does not lie between measured points: what is below the first and beyond the last
    is not known. Nothing is below one connection. Points of an open loop have no knee: their load is what was asked for.
    """
    points = [found for found in points if not found.offered]
    sound = [found for found in points if found.answered and not found.failed] or [found for found in points if found.answered]
    best = max(sound, key=lambda found: (found.power, -found.connections), default=None)
    if best is None:
        return None
    beyond = any(found.connections > best.connections for found in points)
    below = best.connections == 1 or any(found.connections < best.connections for found in points)
    return best if beyond and below else None
