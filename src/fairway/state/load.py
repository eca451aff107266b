"""What routers and replicas measured: counters that only grow, and what is under way."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from fairway.state.batching import BatchingVerdict

LATENCY_BOUNDS = tuple(0.0001 * 1.3**step for step in range(52))
"""Upper bounds in seconds of the latency histogram's buckets, 0.1 ms to about 65 s; one more bucket takes the rest."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """Answers to copies of requests, compared with the answers that the clients got."""

    compared: int = 0
    """Pairs of successful answers whose outputs could be compared."""
    differing: int = 0
    """Of these: with other names, types or shapes, or with numbers that differ beyond the tolerance."""
    relaid: int = 0
    """Of those that differ: by names, types or shapes."""
    classified: int = 0
    """Of those compared: with outputs that name a class, or score several."""
    reclassified: int = 0
    """Of those: with another class."""
    non_finite: int = 0
    """Of those compared: with NaN or infinity where the client's answer has a finite number."""
    restored: int = 0
    """Of those compared: with a finite number where the client's answer has NaN or infinity, and not the other way elsewhere."""
    incomparable: int = 0
    """Pairs in a form that is not compared: another protocol, compressed, or too large."""
    skipped: int = 0
    """Pairs that were left out because too many came at once."""
    largest: float = 0.0
    """The largest difference of a value, by the largest value of its output in the client's answer."""

    def plus(self, other: OutputComparison) -> OutputComparison:
        """Both together."""
        sums = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        return OutputComparison(**{**sums, "largest": max(self.largest, other.largest)})

    def since(self, before: OutputComparison) -> OutputComparison:
        """What was added since then, no count of it below zero; the largest difference is that of all."""
        added = {one.name: max(0, getattr(self, one.name) - getattr(before, one.name)) for one in fields(self)}
        return OutputComparison(**{**added, "largest": self.largest})


@dataclass(frozen=True, slots=True)
class RevisionLoad:
    """What the requests of one revision came to, since the router's epoch."""

    arrived: int = 0
    answered: int = 0
    """With 2xx, 3xx or 4xx but 429."""
    client_errors: int = 0
    """4xx but 429; counted in `answered` as well."""
    failed: int = 0
    """5xx, or no answer, after retries."""
    rejected: int = 0
    """429."""
    latency: tuple[int, ...] = ()
    """Successful answers (2xx), copies included, by `LATENCY_BOUNDS`; empty: none yet. Envoy, and routers of an earlier version,
    count other answers as well."""
    latency_sum: float = 0.0
    mirrored: int = 0
    """Copies of requests that it got."""
    mirror_failed: int = 0
    """Of these, answered with 5xx or not at all."""
    outcomes: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    """What was reported of the answers, by metric: how often, the sum, and the sum of squares."""
    mirror_client_errors: int = 0
    """Of the copies, those answered with 4xx but 429. Routers of an earlier version do not count them."""
    outputs: OutputComparison = OutputComparison()
    """How its answers to copies compare with those that clients got. Routers of an earlier version do not compare."""


@dataclass(frozen=True, slots=True)
class BackendLoad:
    """What one replica did, as the router saw it."""

    in_flight: int = 0
    answered: int = 0
    failed: int = 0
    refused: int = 0
    """Connections that it did not take: it is not there, or not ready."""
    busy_seconds: float = 0.0
    """Time with at least one request under way."""


@dataclass(frozen=True, slots=True)
class RouteLoad:
    """What a router saw of one service."""

    time: float
    epoch: str = ""
    """Another one after every start of the router process; counters of different epochs do not compare."""
    held: int = 0
    """Requests that wait because there is no backend."""
    held_since: float | None = None
    """When the oldest of them came."""
    arrived: int = 0
    """All requests, held ones included."""
    expired: int = 0
    """Held requests that nobody took in time, or for which there was no room."""
    revisions: dict[int, RevisionLoad] = field(default_factory=dict)
    backends: dict[str, BackendLoad] = field(default_factory=dict)
    key_uses: dict[str, float] = field(default_factory=dict)
    """When a request was let in last with each API key, by the id of the key."""


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What a replica says of itself; counters since it started. A server that is not ours says nothing."""

    time: float
    served: int = 0
    """Answers other than 5xx and 429."""
    failed: int = 0
    refused: int = 0
    """Answers with 429."""
    busy_seconds: float = 0.0
    """Time in which the model ran."""
    queue: int = 0
    in_flight: int = 0
    batches: int = 0
    batch_rows: int = 0
    client_errors: int = 0
    """4xx but 429; counted in `served` as well. Replicas of an earlier version do not say."""
    batching: BatchingVerdict | None = None
    """Whether it batches requests; None where it does not report it."""
    non_finite: int = 0
    """Answers with NaN or infinity in an output. Replicas of an earlier version do not count them."""


@dataclass(frozen=True, slots=True)
class ReplicaUse:
    """What a replica uses of what it was given, as the engine sees it: 1 is all of it, None is not known."""

    time: float
    """When it was looked at."""
    cpu: float | None = None
    """Of its cores; more than 1 where it may take what others leave."""
    gpu: float | None = None
    """Of the time of its GPUs."""
    memory: float | None = None
    """Of its limit, or of what it was promised where it has none."""
    held: float | None = None
    """Bytes of memory."""
