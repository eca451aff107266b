"""A service: its revisions, the replicas of each, and the number of replicas."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fairway.spec.service import ServiceSpec
from fairway.state.job import JobKey, SubmissionOrigin
from fairway.state.serving.batching_verdict import BatchingVerdict


@dataclass(frozen=True, slots=True, order=True)
class ServiceKey:
    """Identifies a service: `default/mnist`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """`default/mnist`."""
        return f"{self.namespace}/{self.name}"


class ReplicaPhase(StrEnum):
    """Phase of a replica."""

    WAITING = "Waiting"
    """Waits for a place on a node, or for its code and environment."""
    STARTING = "Starting"
    """Its process runs but does not answer yet."""
    READY = "Ready"
    DRAINING = "Draining"
    """It gets no new requests and finishes the ones it has; then it is stopped."""
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class ServiceReplica:
    """One process that answers requests. It is a run of its own, so that it is placed, watched and logged like any other run."""

    service: ServiceKey
    revision: int
    number: int
    """Sequential number within the service, never reused."""
    run: JobKey
    phase: ReplicaPhase = ReplicaPhase.WAITING
    since: float = 0.0
    """Time at which it entered its phase."""
    created: float = 0.0
    started: float | None = None
    """Start time of its process."""
    address: str = ""
    message: str = ""
    """Why it waits, or how it ended."""
    failed: bool = False
    """Whether it ended without having been stopped."""
    out_of_memory: bool = False
    """Whether it was killed for using too much memory."""

    @property
    def name(self) -> str:
        """`r3-7`: revision and number."""
        return f"r{self.revision}-{self.number}"


def revision_of(name: str) -> int:
    """Return the revision in the name of a replica, 3 for `r3-7`; 0 if it is not such a name."""
    number = name.removeprefix("r").partition("-")[0]
    return int(number) if number.isdecimal() and len(number) < 10 else 0


class RevisionPhase(StrEnum):
    """Status of a revision."""

    NEW = "New"
    """None of its replicas has been ready yet."""
    GOOD = "Good"
    """It served all of the traffic without a failed guard."""
    TRIED = "Tried"
    """Ready, and being rolled out."""
    BAD = "Bad"
    """Rolled back; `reason` names the guard and both numbers."""


@dataclass(frozen=True, slots=True)
class ServiceRevision:
    """One version of a service: its document at that time, with the model version resolved."""

    number: int
    spec: ServiceSpec
    model: str = ""
    """`mnist@7`; empty for a command."""
    model_format: str = ""
    origin: SubmissionOrigin = SubmissionOrigin()
    """Origin of the code and the interpreter of its replicas."""
    created: float = 0.0
    phase: RevisionPhase = RevisionPhase.NEW
    reason: str = ""
    cold_start: float | None = None
    """Latest measurement of the seconds from the start of a replica's process until it was ready."""
    cold_number: int = 0
    """The replica on which it was measured. Each replica is measured once, not again after it was unready for a while."""
    failures: int = 0
    """Number of consecutive replicas that ended on their own; reset when a replica has been ready for a while."""
    failed_at: float = 0.0
    """Time of the last such failure."""
    failed_number: int = 0
    """Number of the replica that failed last."""
    batching: BatchingVerdict | None = None
    """Whether its replicas batch requests, as last reported; None: not known."""


class RolloutPhase(StrEnum):
    """Phase of a rollout."""

    STARTING = "Starting"
    """The replicas of the new revision start; traffic has not moved."""
    STEPPING = "Stepping"
    """Part of the traffic goes to the new revision."""
    PAUSED = "Paused"
    """Paused by a user."""
    DONE = "Done"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True, slots=True)
class ServiceRollout:
    """One rollout from one revision to the next."""

    source: int
    """The revision that served before; 0 for the first rollout."""
    target: int
    phase: RolloutPhase = RolloutPhase.STARTING
    step: int = -1
    """Index into the strategy's steps; -1 before the first step."""
    step_since: float = 0.0
    started: float = 0.0
    finished: float | None = None
    reason: str = ""
    """Why it ended, or what it waits for; for people."""
    marks: dict[str, float] = field(default_factory=dict)
    """Counters at the start of the guards' observation, and the state of the sequential tests."""


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """Decision and memory of the autoscaler."""

    wanted: int = 0
    """Desired number of replicas, over all revisions."""
    rule: str = ""
    """The rule that set the number: `rate`, `backlog`, `latency`, `floor`, `min`, `max`, `hold`, `zero` ..."""
    why: str = ""
    """The rule with its numbers, in one sentence."""
    recommendations: tuple[tuple[float, int], ...] = ()
    """(time, number) within the hold window, thinned. Scaling in goes down to the largest of them."""
    backlogged: tuple[float, int] = (0.0, 0)
    """Last time at which the backlog required more replicas than the rate did, and how many. Kept for a minute, not for the whole
    window."""
    service_rate: dict[int, float] = field(default_factory=dict)
    """Learned requests per busy second of one replica, by revision."""
    quiet_since: float | None = None
    """Time since which no request has arrived."""
    changed: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceState:
    """State of one service."""

    key: ServiceKey
    spec: ServiceSpec
    origin: SubmissionOrigin = SubmissionOrigin()
    labels: dict[str, str] = field(default_factory=dict)
    created: float = 0.0
    revisions: tuple[ServiceRevision, ...] = ()
    """Revisions, newest last; old ones that are no longer needed are removed."""
    stable: int = 0
    """The revision that serves when no rollout is in progress; 0: none has been ready yet."""
    rollout: ServiceRollout | None = None
    """The rollout in progress, or the last one."""
    history: tuple[ServiceRollout, ...] = ()
    """Earlier rollouts, newest last."""
    scale: ScaleDecision = ScaleDecision()
    floor: int = 0
    """Minimum number of replicas set by `fairway scale`, limited by the document's maximum."""
    replicas_made: int = 0
    """Number of the last replica."""
    port: int = 0
    """Port of the service; 0 until it listens."""
    message: str = ""
    """Current problem, in words; empty if there is none."""
    deleting: bool = False
    followed: str = ""
    """Model version to which the followed alias pointed at the last check. Empty: it follows none, or the newest revision's model
    is that version."""

    def revision(self, number: int) -> ServiceRevision | None:
        """Return the revision with this number, or None if it was removed."""
        return next((revision for revision in self.revisions if revision.number == number), None)


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """A service with its replicas, stored together."""

    service: ServiceState
    replicas: tuple[ServiceReplica, ...] = ()
    """Replicas that are not gone, and the last few that are."""
