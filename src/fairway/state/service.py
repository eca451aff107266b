"""A service: revisions of what is served, the replicas of each, and how many there should be."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fairway.spec.service import ServiceSpec
from fairway.state.batching import BatchingVerdict
from fairway.state.job import JobKey, Origin


@dataclass(frozen=True, slots=True, order=True)
class ServiceKey:
    """Names a service: `default/mnist`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """`default/mnist`."""
        return f"{self.namespace}/{self.name}"


class ReplicaPhase(StrEnum):
    """Where a replica is in its life."""

    WAITING = "Waiting"
    """For a place, or for its code and environment."""
    STARTING = "Starting"
    """Its process runs and does not answer yet."""
    READY = "Ready"
    DRAINING = "Draining"
    """It gets no new requests and finishes what it has; then it is told to end."""
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class Replica:
    """One process that answers requests: a run of its own, so that it is placed, watched and logged like any other."""

    service: ServiceKey
    revision: int
    number: int
    """Rises within the service, never used twice."""
    run: JobKey
    phase: ReplicaPhase = ReplicaPhase.WAITING
    since: float = 0.0
    """When it came into its phase."""
    created: float = 0.0
    started: float | None = None
    """When its process started."""
    address: str = ""
    message: str = ""
    """Why it waits or how it ended."""
    failed: bool = False
    """It ended without having been asked to."""
    out_of_memory: bool = False
    """It was killed for using too much memory."""

    @property
    def name(self) -> str:
        """`r3-7`: revision and number."""
        return f"r{self.revision}-{self.number}"


def revision_of(name: str) -> int:
    """The revision in the name of a replica, 3 of `r3-7`; 0 where that is no such name."""
    number = name.removeprefix("r").partition("-")[0]
    return int(number) if number.isdecimal() and len(number) < 10 else 0


class RevisionPhase(StrEnum):
    """What is known of a revision."""

    NEW = "New"
    """None of its replicas was ready yet."""
    GOOD = "Good"
    """It served all of the traffic and nothing spoke against it."""
    TRIED = "Tried"
    """Ready, and on its way in."""
    BAD = "Bad"
    """Rolled back; `reason` names the guard and both numbers."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One version of what is served: the document as it was, with its model pinned."""

    number: int
    spec: ServiceSpec
    model: str = ""
    """`mnist@7`; empty for a command."""
    model_format: str = ""
    origin: Origin = Origin()
    """Whose code and interpreter its replicas use."""
    created: float = 0.0
    phase: RevisionPhase = RevisionPhase.NEW
    reason: str = ""
    cold_start: float | None = None
    """Seconds from the start of a replica's process until it was ready, as measured last."""
    cold_number: int = 0
    """The replica on which it was measured: each is measured once, not again when it was unready for a while."""
    failures: int = 0
    """Replicas that ended by themselves, one after the other; forgotten when one has been ready for a while."""
    failed_at: float = 0.0
    """When the last of them did."""
    failed_number: int = 0
    """Its number."""
    batching: BatchingVerdict | None = None
    """Whether its replicas batch requests, as they reported last; None: not known."""


class RolloutPhase(StrEnum):
    """Where a rollout is."""

    STARTING = "Starting"
    """The new revision's replicas come up; traffic has not moved."""
    STEPPING = "Stepping"
    """Part of the traffic goes to the new revision."""
    PAUSED = "Paused"
    """Held where it is, by a person."""
    DONE = "Done"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One release: from one revision to the next."""

    source: int
    """The revision that served before; 0 at the first."""
    target: int
    phase: RolloutPhase = RolloutPhase.STARTING
    step: int = -1
    """Index into the strategy's steps; -1 before the first."""
    step_since: float = 0.0
    started: float = 0.0
    finished: float | None = None
    reason: str = ""
    """Why it ended as it did, or what it waits for: for people."""
    marks: dict[str, float] = field(default_factory=dict)
    """Counters as they were when the guards began to look, and what the sequential tests remember."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What the autoscaler decided and remembers."""

    wanted: int = 0
    """Replicas, over all revisions."""
    rule: str = ""
    """Which rule set the number: `rate`, `backlog`, `latency`, `floor`, `min`, `max`, `hold`, `zero` ..."""
    why: str = ""
    """The rule with its numbers, in a sentence."""
    recommendations: tuple[tuple[float, int], ...] = ()
    """(time, number) within the hold window, thinned: scaling in goes to the largest of them."""
    backlogged: tuple[float, int] = (0.0, 0)
    """When a backlog asked for more than the rate did, last, and for how many: kept for a minute, not for the window."""
    service_rate: dict[int, float] = field(default_factory=dict)
    """Requests a busy second of one replica, learnt a revision."""
    quiet_since: float | None = None
    """Since when nothing arrived."""
    changed: float = 0.0


@dataclass(frozen=True, slots=True)
class Service:
    """What is known of one service."""

    key: ServiceKey
    spec: ServiceSpec
    origin: Origin = Origin()
    labels: dict[str, str] = field(default_factory=dict)
    created: float = 0.0
    revisions: tuple[Revision, ...] = ()
    """The newest last; old ones that nobody needs are forgotten."""
    stable: int = 0
    """The revision that serves when no rollout is under way; 0: none was ready yet."""
    rollout: Rollout | None = None
    """The one under way, or the last."""
    history: tuple[Rollout, ...] = ()
    """Earlier ones, the newest last."""
    scale: Scale = Scale()
    floor: int = 0
    """Set by `fairway scale`: never fewer, within what the document allows at the most."""
    replicas_made: int = 0
    """The last replica's number."""
    port: int = 0
    """Where it listens, once it does."""
    message: str = ""
    """What is in its way, in words; empty when nothing is."""
    deleting: bool = False
    followed: str = ""
    """What the alias that it follows meant when it was looked at last; empty: it follows none, or the newest revision's model."""

    def revision(self, number: int) -> Revision | None:
        """The revision of that number, when it is still known."""
        return next((revision for revision in self.revisions if revision.number == number), None)


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """A service with its replicas: what is remembered together."""

    service: Service
    replicas: tuple[Replica, ...] = ()
    """Those that are not gone, and the last few that are."""
