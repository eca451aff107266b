"""A service, its replicas, its router and its clients on a virtual clock.

The planner is the real one. Everything around it is simulated: replicas take time to start, requests wait for each other,
versions fail as configured, and daemon, router and replicas can be killed at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fairway.plan.service import autoscaler, service_command
from fairway.plan.service.service_plan import ScalingRule, ServiceMeasurements, ServicePlan, ServiceSample, advance
from fairway.simulation.service.load_shape import Traffic
from fairway.simulation.service.replica_pool import ReplicaPool
from fairway.simulation.service.traffic_recording import TrafficRecording
from fairway.simulation.service.version_behaviour import VersionBehaviour
from fairway.spec.service import ServiceSpec
from fairway.state.job import JobKey, SubmissionOrigin
from fairway.state.service import ReplicaPhase, ServiceKey, ServiceReplica, ServiceState
from fairway.state.serving.load import BackendLoad, ReplicaLoad, ReplicaUse, RouteLoad
from fairway.state.serving.route import WHOLE, RoutePlan

KEY = ServiceKey("default", "simulated")
_GONE_KEPT = 20
_USE_EVERY = 5.0
"""Interval in seconds between measurements of the replicas' resource use."""
_MEMORY_NOISE = 0.001
"""Standard deviation of two measurements of the same memory."""


@dataclass(slots=True)
class ServiceTick:
    """Values of one tick."""

    time: float
    arrived: int
    answered: int
    took: np.ndarray
    """Duration of each answer."""
    wanted: int
    live: int
    """Number of replicas that cost something: all except those that are gone."""
    capacity: float
    """Requests per second that the ready replicas known to the router can answer."""


@dataclass(slots=True)
class ReplicaCounters:
    """Counters of one replica."""

    served: int = 0
    busy: float = 0.0
    non_finite: int = 0


@dataclass(slots=True)
class SimulatedService:
    """A simulated service. `run` advances it; `apply`, `restart_daemon`, `restart_router` and `kill` change it in between."""

    traffic: Traffic
    seed: int = 0
    tick: float = 0.5
    look: float = 2.0
    recording: TrafficRecording | None = None
    """Recorded durations of single answers and parts of bad requests; None: durations as configured by the versions, and no bad
    requests."""
    begins: float = 0.0
    """Position in the recording at which this simulation begins."""
    rule: ScalingRule = autoscaler.decide
    room: int | None = None
    """Number of replicas for which there is room; None: any number."""
    service: ServiceState | None = None
    now: float = 0.0
    replicas: list[ServiceReplica] = field(default_factory=list)
    measured: ServiceMeasurements = ServiceMeasurements()
    moments: list[ServiceTick] = field(default_factory=list)
    plans: list[tuple[float, ServicePlan]] = field(default_factory=list)
    events: list[tuple[float, str, str]] = field(default_factory=list)
    route: RoutePlan | None = None
    held: int = 0
    held_since: float | None = None
    expired: int = 0
    """Requests that were held longer than the document allows, and answered 503."""
    arrived: int = 0
    epoch: int = 1
    retried: int = 0
    """Requests that were in the queue of a revision when it lost its last replica."""
    watch: Callable[[SimulatedService, ServicePlan], None] | None = None
    """Called after every plan, with the state before it."""
    _pools: dict[int, ReplicaPool] = field(default_factory=dict)
    _own: dict[str, ReplicaCounters] = field(default_factory=dict)
    _versions: dict[int, VersionBehaviour] = field(default_factory=dict)
    _chance: np.random.Generator = field(init=False)
    _noise: np.random.Generator = field(init=False)
    _looked: float = -1e9
    _used: dict[str, ReplicaUse] = field(default_factory=dict)
    _busy_then: dict[str, float] = field(default_factory=dict)
    """Busy seconds of each replica at the last measurement of resource use."""
    _used_at: float = 0.0

    def __post_init__(self) -> None:
        """Create the random generators: all randomness comes from the seed."""
        self._chance = np.random.default_rng(self.seed)
        self._noise = np.random.default_rng((self.seed, 1))

    def apply(self, spec: ServiceSpec, version: VersionBehaviour) -> None:
        """Apply a document, with the behaviour of its version."""
        previous_revisions = self.service.revisions if self.service else ()
        self.service = service_command.applied(self.service, KEY, spec, spec.model, "onnx", SubmissionOrigin(), {}, self.now)
        if self.service.revisions[-1:] != previous_revisions[-1:]:
            self._versions[self.service.revisions[-1].number] = version
        self._looked = -1e9

    def change(self, verb: Callable[[ServiceState], ServiceState]) -> None:
        """Apply a function of `commands` to the service."""
        if self.service is not None:
            self.service = verb(self.service)

    def restart_daemon(self) -> None:
        """Restart the daemon: measurements are lost, stored state stays."""
        self.measured, self._used = ServiceMeasurements(), {}

    def restart_router(self) -> None:
        """Restart the router: counters are reset; routes and held requests stay."""
        self.epoch += 1
        self.arrived = 0
        self._pools = {number: ReplicaPool(pool.version, pool.queue) for number, pool in self._pools.items()}

    def kill(self, name: str, message: str = "ended by SIGKILL", *, for_memory: bool = False) -> None:
        """End a replica without a stop request."""
        for index, replica in enumerate(self.replicas):
            if replica.name == name and replica.phase is not ReplicaPhase.GONE:
                ended = replace(replica, phase=ReplicaPhase.GONE, since=self.now, failed=True, message=message)
                self.replicas[index] = replace(ended, out_of_memory=for_memory)

    def run(self, seconds: float) -> None:
        """Advance the clock by this many seconds."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self._live()
            if self.now - self._looked >= self.look - 1e-9:
                self.plan()
            self._serve()
            self.now = round(self.now + self.tick, 6)

    def version(self, revision: int) -> VersionBehaviour:
        """Return the behaviour of a revision."""
        return self._versions.get(revision, VersionBehaviour())

    def served(self, name: str) -> int:
        """Return how many requests a replica has answered."""
        return self._own[name].served if name in self._own else 0

    def _live(self) -> None:
        """Let replicas start, become ready, or fail."""
        for index, replica in enumerate(self.replicas):
            version = self.version(replica.revision)
            if replica.phase is ReplicaPhase.WAITING:
                self.replicas[index] = self._placed(replica)
            elif (
                replica.phase is ReplicaPhase.STARTING
                and self.now - replica.since >= version.cold_start - 1e-9
                and not version.hangs
            ):
                ended = {"phase": ReplicaPhase.GONE, "failed": True, "message": "exit 1: cannot load the model"}
                ready = {"phase": ReplicaPhase.READY, "address": f"127.0.0.1:{replica.number}"}
                self.replicas[index] = replace(replica, since=self.now, **(ended if version.crashes else ready))
        gone_replicas = [replica for replica in self.replicas if replica.phase is ReplicaPhase.GONE]
        forgotten = {replica.name for replica in gone_replicas[:-_GONE_KEPT]}
        self.replicas = [replica for replica in self.replicas if replica.name not in forgotten]

    def _placed(self, one: ServiceReplica) -> ServiceReplica:
        placed = sum(other.phase not in (ReplicaPhase.WAITING, ReplicaPhase.GONE) for other in self.replicas)
        if self.room is not None and placed >= self.room:
            return replace(one, message="all places are taken")
        return replace(one, phase=ReplicaPhase.STARTING, since=self.now, started=self.now, message="")

    def plan(self) -> None:
        """Run one turn of the daemon: measure, plan and act."""
        if self.service is None:
            return
        self._looked = self.now
        self.measured = self.measured.add(self._sample())
        plan = advance(self.service, self.replicas, self.measured, self.now, self.rule)
        if self.watch:
            self.watch(self, plan)
        self.plans.append((self.now, plan))
        self.events.extend((self.now, reason, message) for reason, message in plan.events)
        self._perform(plan)

    def _perform(self, plan: ServicePlan) -> None:
        self.service, self.route = plan.service, plan.routes
        first = plan.service.replicas_made - len(plan.start) + 1
        new_replicas = [
            ServiceReplica(KEY, revision, number, JobKey("default", f"simulated-{number}"), since=self.now, created=self.now)
            for number, revision in enumerate(plan.start, first)
        ]
        for index, replica in enumerate(self.replicas):
            if replica.phase is ReplicaPhase.GONE:
                continue
            if replica.name in plan.stop:
                self.replicas[index] = replace(replica, phase=ReplicaPhase.GONE, since=self.now)
            elif replica.name in plan.drain:
                self.replicas[index] = replace(replica, phase=ReplicaPhase.DRAINING, since=self.now)
        self.replicas.extend(new_replicas)

    def _backends(self) -> dict[int, list[str]]:
        """Return the replicas that get requests, by revision: those that are in the route plan and alive."""
        alive = {replica.name for replica in self.replicas if replica.phase in (ReplicaPhase.READY, ReplicaPhase.DRAINING)}
        by_revision: dict[int, list[str]] = {}
        for backend in self.route.backends if self.route else ():
            if backend.name in alive:
                by_revision.setdefault(backend.revision, []).append(backend.name)
        return by_revision

    def _serve(self) -> None:
        """Let requests arrive and replicas answer."""
        pending = int(self._chance.poisson(max(0.0, self.traffic(self.now)) * self.tick))
        self.arrived += pending
        backends = self._backends()
        new_requests, pending = pending, pending + self.held
        self.held = 0 if backends else pending
        self._expire()
        durations: list[np.ndarray] = []
        for number, count in self._dealt(pending if backends else 0, backends).items():
            pool = self._pool(number)
            served, times = pool.serve(count, len(backends[number]), self.tick, self._chance, self._slowness())
            pool.answer(served, times, self._chance, copies=False, bad=self._bad())
            durations.append(times)
            self._credit(backends[number], served, pool)
        self._copy(pending, backends)
        for number, pool in self._pools.items():
            if pool.queue and number not in backends:
                # The router retries them on another replica; no request is lost while there is one.
                self.held, self.retried = self.held + int(pool.queue), self.retried + int(pool.queue)
                pool.queue = 0.0
        capacity = sum(len(names) * self._pool(number).version.rate for number, names in backends.items())
        live = sum(replica.phase is not ReplicaPhase.GONE for replica in self.replicas)
        desired = self.service.scale.wanted if self.service else 0
        times = np.concatenate(durations) if durations else np.zeros(0)
        self.moments.append(ServiceTick(self.now, new_requests, len(times), times, desired, live, capacity))

    def _expire(self) -> None:
        """Drop requests that were held too long."""
        self.held_since = None if not self.held else self.now if self.held_since is None else self.held_since
        limit = self.route.hold_seconds if self.route else 0.0
        if self.held_since is not None and self.now - self.held_since > limit:
            self.expired, self.held, self.held_since = self.expired + self.held, 0, None

    def _dealt(self, coming: int, backends: dict[int, list[str]]) -> dict[int, int]:
        """Distribute requests to revisions by the weights of those that have a backend."""
        weights = {number: weight for number, weight in (self.route.weights if self.route else ()) if number in backends}
        weights = weights or dict.fromkeys(backends, 1)
        numbers = sorted(weights)
        total = sum(weights.values())
        counts = self._chance.multinomial(coming, [weights[number] / total for number in numbers]) if numbers else ()
        dealt = {number: int(count) for number, count in zip(numbers, counts, strict=True)}
        return {number: dealt.get(number, 0) for number in backends if dealt.get(number) or self._pool(number).queue}

    def _copy(self, coming: int, backends: dict[int, list[str]]) -> None:
        mirror = self.route.mirror if self.route else None
        if mirror and mirror.revision in backends:
            pool = self._pool(mirror.revision)
            count = int(self._chance.binomial(coming, mirror.share / WHOLE))
            served, durations = pool.serve(count, len(backends[mirror.revision]), self.tick, self._chance, self._slowness())
            pool.answer(served, durations, self._chance, copies=True, bad=self._bad())
            self._credit(backends[mirror.revision], served, pool)

    def _slowness(self) -> np.ndarray | None:
        return self.recording.slowness(self.begins + self.now) if self.recording else None

    def _bad(self) -> float:
        return self.recording.bad(self.begins + self.now) if self.recording else 0.0

    def _credit(self, names: Sequence[str], served: int, pool: ReplicaPool) -> None:
        per_replica, remainder = divmod(served, len(names))
        first = int(self._chance.integers(len(names)))
        for index, name in enumerate(names):
            counters = self._own.setdefault(name, ReplicaCounters())
            answers = per_replica + ((index - first) % len(names) < remainder)
            counters.served += answers
            counters.busy += pool.busy
            counters.non_finite += pool.non_finite // len(names) + (index == first and pool.non_finite % len(names))
            self._wear(name, pool.version, answers)

    def _wear(self, name: str, version: VersionBehaviour, answers: int) -> None:
        """Apply the effects of answers to their replica."""
        if version.leak and self._memory(name, version) >= 1.0:
            self.kill(name, "replica-0 was killed for using too much memory", for_memory=True)
        elif version.fragile and self._chance.random() < 1.0 - (1.0 - version.fragile) ** answers:
            self.kill(name, "SIGSEGV")

    def _memory(self, name: str, version: VersionBehaviour) -> float:
        """Return the part of its memory that a replica uses."""
        served = self.served(name)
        cache_size, cache_answers = version.cache
        return version.memory + version.leak * served + cache_size * (1.0 - math.exp(-served / cache_answers))

    def _pool(self, number: int) -> ReplicaPool:
        return self._pools.setdefault(number, ReplicaPool(self.version(number)))

    def _sample(self) -> ServiceSample:
        backends = self._backends()
        queues = {name: self._pool(number).queue / len(names) for number, names in backends.items() for name in names}
        route = RouteLoad(
            self.now,
            epoch=str(self.epoch),
            held=self.held,
            held_since=self.held_since,
            arrived=self.arrived,
            revisions={number: pool.load() for number, pool in self._pools.items()},
            backends={name: BackendLoad(in_flight=round(queue)) for name, queue in queues.items()},
        )
        loads = {
            name: ReplicaLoad(
                self.now,
                served=counters.served,
                busy_seconds=counters.busy,
                queue=round(queues.get(name, 0.0)),
                non_finite=counters.non_finite,
            )
            for name, counters in self._own.items()
            if name in queues
        }
        for name in queues:
            loads.setdefault(name, ReplicaLoad(self.now))
        self._look_at_use()
        silent = {replica.name for replica in self.replicas if self._is_silent(replica.revision)}
        reported = {name: load for name, load in loads.items() if name not in silent}
        return ServiceSample(self.now, route, reported, {name: use for name, use in self._used.items() if name in queues})

    def _is_silent(self, revision: int) -> bool:
        """Return whether the revision's server reports no load."""
        known_revision = self.service.revision(revision) if self.service else None
        return bool(known_revision and known_revision.spec.command)

    def _look_at_use(self) -> None:
        passed = self.now - self._used_at
        if passed < _USE_EVERY:
            return
        ready = [replica for replica in self.replicas if replica.phase is ReplicaPhase.READY]
        busy = {replica.name: self._own[replica.name].busy if replica.name in self._own else 0.0 for replica in ready}
        self._used = {
            replica.name: ReplicaUse(
                self.now,
                cpu=version.cpu * (busy[replica.name] - self._busy_then[replica.name]) / passed,
                memory=max(0.0, self._memory(replica.name, version) + float(self._noise.normal(0.0, _MEMORY_NOISE))),
            )
            for replica in ready
            if replica.name in self._busy_then
            for version in (self.version(replica.revision),)
        }
        self._used_at, self._busy_then = self.now, busy
