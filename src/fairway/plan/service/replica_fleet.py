"""The replicas of a service: learn from them, start missing ones, and drain or stop surplus ones.

A surplus ready replica is kept while the wanted ones are not sufficient, so that old replicas go only when others are ready.
Replicas that end by themselves are replaced: the first at once, later ones after a growing back-off. So are replicas that no
longer respond.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.plan.service.measurement import ServiceMeasurements
from fairway.plan.service.replica_split import ReplicaTarget, speed
from fairway.state.service import ReplicaPhase, RevisionPhase, ServiceReplica, ServiceRevision, ServiceState
from fairway.state.serving.batching_verdict import BatchingVerdict
from fairway.units import quantity

PAUSE_MOST = 300.0
"""Maximum back-off in seconds."""
WAITS = 10.0
"""Seconds after which a replica that waits for a placement is reported."""
PROVEN = 60.0
"""Seconds of readiness of a replica after which earlier failures are forgotten."""
COLD_MOST = 86_400.0
"""Maximum plausible cold start in seconds; longer values come from clocks that disagree."""
_MOST_DOUBLINGS = 16
_STRESS = 0.95
"""Temporary utilisation allowed for good replicas, so that a bad revision gets less traffic."""

_LIVE = (ReplicaPhase.WAITING, ReplicaPhase.STARTING, ReplicaPhase.READY)


@dataclass(frozen=True, slots=True)
class ReplicaOrders:
    """The actions for a service's replicas."""

    start: tuple[int, ...] = ()
    drain: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    wake_at: float | None = None
    """When a back-off or a grace period ends."""


def ready_names(replicas: Iterable[ServiceReplica]) -> dict[int, frozenset[str]]:
    """Return the names of the ready replicas, by revision."""
    names_by_revision: dict[int, set[str]] = {}
    for replica in replicas:
        if replica.phase is ReplicaPhase.READY:
            names_by_revision.setdefault(replica.revision, set()).add(replica.name)
    return {revision: frozenset(names) for revision, names in names_by_revision.items()}


def learn(service: ServiceState, replicas: Sequence[ServiceReplica], now: float) -> ServiceState:
    """Update the revisions from their replicas: readiness, cold start time, and failures."""
    revisions = tuple(
        _learnt(revision, [replica for replica in replicas if replica.revision == revision.number], now)
        for revision in service.revisions
    )
    return service if revisions == service.revisions else replace(service, revisions=revisions)


def _learnt(revision: ServiceRevision, replicas: Sequence[ServiceReplica], now: float) -> ServiceRevision:
    ready = [replica for replica in replicas if replica.phase is ReplicaPhase.READY]
    if ready and revision.phase is RevisionPhase.NEW:
        revision = replace(revision, phase=RevisionPhase.TRIED)
    timed = [replica for replica in ready if replica.started is not None and replica.number > revision.cold_number]
    if timed:
        newest = max(timed, key=lambda replica: replica.number)
        duration = max(0.0, newest.since - (newest.started or 0.0))
        cold_start = duration if duration <= COLD_MOST else revision.cold_start
        revision = replace(revision, cold_start=cold_start, cold_number=newest.number)
    last_failure = (revision.failed_at, revision.failed_number)
    failed = sorted(
        (replica.since, replica.number)
        for replica in replicas
        if replica.phase is ReplicaPhase.GONE and replica.failed and (replica.since, replica.number) > last_failure
    )
    if failed:
        at, number = failed[-1]
        return replace(revision, failures=revision.failures + len(failed), failed_at=at, failed_number=number)
    proven = any(replica.since <= now - PROVEN for replica in ready) and revision.failed_at <= now - PROVEN
    return replace(revision, failures=0) if revision.failures and proven else revision


def learn_batching(service: ServiceState, replicas: Sequence[ServiceReplica], measured: ServiceMeasurements) -> ServiceState:
    """Update the revisions' batching verdicts from their replicas. Where they differ, a replica that does not batch counts."""
    loads = measured.last.replicas if measured.last is not None else {}
    verdicts: dict[int, tuple[bool, int, BatchingVerdict]] = {}
    for replica in replicas:
        verdict = loads[replica.name].batching if replica.name in loads else None
        if verdict is not None:
            entry = (verdict.batched, replica.number, verdict)
            verdicts[replica.revision] = min(verdicts.get(replica.revision, entry), entry, key=lambda candidate: candidate[:2])
    revisions = tuple(
        replace(entry, batching=verdicts[entry.number][2]) if entry.number in verdicts else entry for entry in service.revisions
    )
    return service if revisions == service.revisions else replace(service, revisions=revisions)


def without_room(replicas: Iterable[ServiceReplica], revision: int, now: float) -> ServiceReplica | None:
    """Return a replica of the revision that has waited for a placement for more than `WAITS` seconds; None if there is none."""
    waiting = (
        replica
        for replica in replicas
        if replica.revision == revision and replica.phase is ReplicaPhase.WAITING and replica.message
    )
    return next((replica for replica in waiting if replica.created <= now - WAITS), None)


def not_before(revision: ServiceRevision) -> float:
    """Return when the next replica may be started."""
    if revision.failures <= 1:
        return 0.0
    doublings = min(revision.failures - 2, _MOST_DOUBLINGS)
    return revision.failed_at + min(PAUSE_MOST, 2.0**doublings)


def orders(
    service: ServiceState,
    replicas: Sequence[ServiceReplica],
    parts: Mapping[int, ReplicaTarget],
    measured: ServiceMeasurements,
    now: float,
) -> ReplicaOrders:
    """Return which replicas to start, drain and stop so that each revision reaches its target."""
    start: list[int] = []
    wakes: list[float] = []
    stuck = {replica.name for replica in replicas if _is_stuck(service, replica, now)}
    replicas = [replica for replica in replicas if replica.name not in stuck]
    for number, part in sorted(parts.items()):
        live = sum(replica.revision == number and replica.phase in _LIVE for replica in replicas)
        revision = service.revision(number)
        if part.wanted <= live or revision is None:
            continue
        if now < not_before(revision):
            wakes.append(not_before(revision))
        else:
            start.extend([number] * (part.wanted - live))
    useless, spare = _surplus(replicas, parts)
    drain = _free(service, replicas, spare, parts)
    finished, due = _finished(service, replicas, measured, now)
    wakes.extend(due)
    return ReplicaOrders(tuple(start), tuple(drain), (*sorted(stuck), *useless, *finished), min(wakes, default=None))


def _is_stuck(service: ServiceState, replica: ServiceReplica, now: float) -> bool:
    """Return whether the replica has been starting for so long that it is replaced."""
    return replica.phase is ReplicaPhase.STARTING and now >= replica.since + quantity.seconds(service.spec.rollout.guard.ready)


def _surplus(replicas: Sequence[ServiceReplica], parts: Mapping[int, ReplicaTarget]) -> tuple[list[str], list[ServiceReplica]]:
    """Return the replicas beyond their revisions' targets: names of those that are not ready, and the ready ones."""
    useless: list[str] = []
    spare: list[ServiceReplica] = []
    order = {ReplicaPhase.WAITING: 0, ReplicaPhase.STARTING: 1, ReplicaPhase.READY: 2}
    for number in sorted({replica.revision for replica in replicas}):
        live = [replica for replica in replicas if replica.revision == number and replica.phase in _LIVE]
        live.sort(key=lambda replica: (order[replica.phase], -replica.number))
        part = parts.get(number, ReplicaTarget(0))
        beyond = [] if part.keeps else live[: max(0, len(live) - part.wanted)]
        useless.extend(replica.name for replica in beyond if replica.phase is not ReplicaPhase.READY)
        spare.extend(replica for replica in beyond if replica.phase is ReplicaPhase.READY)
    return useless, spare


def _free(
    service: ServiceState, replicas: Sequence[ServiceReplica], spare: list[ServiceReplica], parts: Mapping[int, ReplicaTarget]
) -> list[str]:
    """Return the names of surplus ready replicas that may be drained because the others are sufficient."""
    ready = ready_names(replicas)

    def lack(factor: float) -> float:
        """Return the missing capacity, in requests per second."""
        missing = {number: math.ceil(part.need * factor) - len(ready.get(number, ())) for number, part in parts.items()}
        return sum(max(0, count) * speed(service, number) for number, count in missing.items())

    def rank(replica: ServiceReplica) -> tuple[bool, bool, int]:
        return (is_bad(service, replica.revision), replica.revision != service.stable, replica.number)

    kept = 0.0
    free: list[str] = []
    for replica in sorted(spare, key=rank):
        if parts.get(replica.revision, ReplicaTarget(0)).makes_way:
            free.append(replica.name)
        elif kept < lack(stress(service) if is_bad(service, replica.revision) else 1.0):
            kept += speed(service, replica.revision)
        else:
            free.append(replica.name)
    return free


def is_bad(service: ServiceState, number: int) -> bool:
    """Return whether the revision was rolled back."""
    revision = service.revision(number)
    return revision is not None and revision.phase is RevisionPhase.BAD


def stress(service: ServiceState) -> float:
    """Return the fraction of the planned replicas that is temporarily sufficient."""
    return min(1.0, quantity.percent(service.spec.scaling.utilisation) / _STRESS)


def _finished(
    service: ServiceState, replicas: Sequence[ServiceReplica], measured: ServiceMeasurements, now: float
) -> tuple[list[str], list[float]]:
    """Return the draining replicas that are idle or past their grace period, and when the other grace periods end."""
    finished: list[str] = []
    due: list[float] = []
    # Without a port there is no router that could report requests in flight.
    no_router = service.deleting and not service.port
    for replica in replicas:
        if replica.phase is not ReplicaPhase.DRAINING:
            continue
        revision = service.revision(replica.revision)
        end = replica.since + quantity.seconds((revision.spec if revision else service.spec).grace)
        if now >= end or no_router or _is_idle(replica, measured):
            finished.append(replica.name)
        else:
            due.append(end)
    return finished, due


def _is_idle(replica: ServiceReplica, measured: ServiceMeasurements) -> bool:
    """Return whether a sample from after the start of the drain shows no requests in flight."""
    last = measured.last
    if last is None or last.route is None or last.time <= replica.since:
        return False
    router_load, own_load = last.route.backends.get(replica.name), last.replicas.get(replica.name)
    return not (router_load and router_load.in_flight) and not (own_load and (own_load.in_flight or own_load.queue))
