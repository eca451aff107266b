"""Measurements of routers and replicas: counters that only grow, and gauges."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from fairway.state.serving.batching_verdict import BatchingVerdict

LATENCY_BOUNDS = tuple(0.0001 * 1.3**step for step in range(52))
"""Upper bounds in seconds of the latency histogram's buckets, 0.1 ms to about 65 s; one more bucket holds all longer ones."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """Comparison of the answers to copied requests with the answers that the clients got."""

    compared: int = 0
    """Pairs of successful answers whose outputs could be compared."""
    differing: int = 0
    """Compared pairs with different names, types or shapes, or with numbers that differ beyond the tolerance."""
    relaid: int = 0
    """Differing pairs that differ in names, types or shapes."""
    classified: int = 0
    """Compared pairs with outputs that name a class, or score several."""
    reclassified: int = 0
    """Classified pairs with different classes."""
    non_finite: int = 0
    """Compared pairs with NaN or infinity where the client's answer has a finite number."""
    restored: int = 0
    """Compared pairs with a finite number where the client's answer has NaN or infinity, and never the reverse."""
    incomparable: int = 0
    """Pairs that cannot be compared: another protocol, compressed, or too large."""
    skipped: int = 0
    """Pairs skipped because too many arrived at once."""
    largest: float = 0.0
    """Largest difference of a value, relative to the largest value of its output in the client's answer."""

    def plus(self, other: OutputComparison) -> OutputComparison:
        """Return the sum of both comparisons."""
        sums = {count.name: getattr(self, count.name) + getattr(other, count.name) for count in fields(self)}
        return OutputComparison(**{**sums, "largest": max(self.largest, other.largest)})

    def since(self, before: OutputComparison) -> OutputComparison:
        """Return what was added since `before`. No count is negative; the largest difference is not reduced."""
        added = {count.name: max(0, getattr(self, count.name) - getattr(before, count.name)) for count in fields(self)}
        return OutputComparison(**{**added, "largest": self.largest})


@dataclass(frozen=True, slots=True)
class RevisionLoad:
    """Counters of the requests of one revision since the router's epoch."""

    arrived: int = 0
    answered: int = 0
    """Requests answered with 2xx, 3xx, or 4xx except 429."""
    client_errors: int = 0
    """Answers with 4xx except 429; included in `answered`."""
    failed: int = 0
    """Answers with 5xx, or no answer, after retries."""
    rejected: int = 0
    """Answers with 429."""
    latency: tuple[int, ...] = ()
    """Histogram of successful answers (2xx), including copies, by `LATENCY_BOUNDS`; empty: none yet. Envoy, and routers of an
    earlier version, count other answers as well."""
    latency_sum: float = 0.0
    mirrored: int = 0
    """Copies of requests sent to this revision."""
    mirror_failed: int = 0
    """Copies answered with 5xx or not at all."""
    outcomes: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    """Reported outcomes by metric: count, sum, and sum of squares."""
    mirror_client_errors: int = 0
    """Copies answered with 4xx except 429. Routers of an earlier version do not count them."""
    outputs: OutputComparison = OutputComparison()
    """Comparison of its answers to copies with those that clients got. Routers of an earlier version do not compare."""


@dataclass(frozen=True, slots=True)
class BackendLoad:
    """Counters of one replica, as seen by the router."""

    in_flight: int = 0
    answered: int = 0
    failed: int = 0
    refused: int = 0
    """Connections that it did not accept: the replica is not running, or not ready."""
    busy_seconds: float = 0.0
    """Time with at least one request in flight."""


@dataclass(frozen=True, slots=True)
class RouteLoad:
    """Counters of one service in its router."""

    time: float
    epoch: str = ""
    """Identifies one start of the router process; counters of different epochs cannot be compared."""
    held: int = 0
    """Requests held because there is no backend."""
    held_since: float | None = None
    """Arrival time of the oldest held request."""
    arrived: int = 0
    """All requests, including held ones."""
    expired: int = 0
    """Held requests that got no backend in time, or were rejected because the queue was full."""
    revisions: dict[int, RevisionLoad] = field(default_factory=dict)
    backends: dict[str, BackendLoad] = field(default_factory=dict)
    key_uses: dict[str, float] = field(default_factory=dict)
    """Time of the last admitted request with each API key, by the id of the key."""


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """Counters that a replica reports, since it started. Servers other than Fairway's report nothing."""

    time: float
    served: int = 0
    """Answers except 5xx and 429."""
    failed: int = 0
    refused: int = 0
    """Answers with 429."""
    busy_seconds: float = 0.0
    """Time during which the model ran."""
    queue: int = 0
    in_flight: int = 0
    batches: int = 0
    batch_rows: int = 0
    client_errors: int = 0
    """Answers with 4xx except 429; included in `served`. Replicas of an earlier version do not report them."""
    batching: BatchingVerdict | None = None
    """Whether the replica batches requests; None if it does not report it."""
    non_finite: int = 0
    """Answers with NaN or infinity in an output. Replicas of an earlier version do not count them."""


@dataclass(frozen=True, slots=True)
class ReplicaUse:
    """Resource use of a replica as the engine measures it: 1 is all of its resources, None is not known."""

    time: float
    """Time of the measurement."""
    cpu: float | None = None
    """Part of its cores; more than 1 if it may use idle cores beyond its own."""
    gpu: float | None = None
    """Part of the time of its GPUs."""
    memory: float | None = None
    """Part of its memory limit, or of its memory request if it has no limit."""
    held: float | None = None
    """Memory used, in bytes."""
