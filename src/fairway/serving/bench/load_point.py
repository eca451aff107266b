"""The results of a load test as values, and the knee of the curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """The result for one number of connections."""

    connections: int
    seconds: float
    answered: int
    """Requests answered with 2xx."""
    failed: int
    """Requests answered with another status, or not at all."""
    latency: dict[int, float]
    """Latency in seconds by percentile."""
    statuses: dict[int, int]
    """Number of answers by status; 0 stands for no answer."""
    offered: float = 0.0
    """Requests per second that were due, in an open loop; 0 in a closed loop."""
    client_cpu: float = 0.0
    """Fraction of a core that the load generator used."""

    @property
    def rate(self) -> float:
        """Successful answers per second."""
        return self.answered / self.seconds if self.seconds > 0 else 0.0

    @property
    def power(self) -> float:
        """Rate divided by the 95th percentile of latency: it rises while added load gains more rate than it costs latency."""
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
) -> LoadPoint:
    """Build a point from the latencies of the successful answers and the number of answers by status."""
    ordered = sorted(taken)
    latency = (
        {percent: ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] for percent in PERCENTILES} if ordered else {}
    )
    failed = sum(statuses.values()) - len(ordered)
    return LoadPoint(connections, seconds, len(ordered), failed, latency, statuses, offered, client_cpu)


def knee(points: Sequence[LoadPoint]) -> LoadPoint | None:
    """Return the point beyond which more connections do not pay: the one with the greatest power.

    Points with failures count only if all have failures. None when nothing was answered, or when the knee does not lie between
    measured points: power below the first and beyond the last is unknown. Nothing lies below one connection. Points of an open
    loop have no knee, because their rate was set by the caller.
    """
    points = [candidate for candidate in points if not candidate.offered]
    sound = [candidate for candidate in points if candidate.answered and not candidate.failed] or [
        candidate for candidate in points if candidate.answered
    ]
    best = max(sound, key=lambda candidate: (candidate.power, -candidate.connections), default=None)
    if best is None:
        return None
    beyond = any(candidate.connections > best.connections for candidate in points)
    below = best.connections == 1 or any(candidate.connections < best.connections for candidate in points)
    return best if beyond and below else None
