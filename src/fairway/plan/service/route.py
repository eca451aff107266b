"""Routing of requests: to ready replicas, by the traffic shares of a release.

A revision with too few ready replicas for its share passes the rest to surplus replicas of other revisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairway.plan.service import replica_fleet
from fairway.plan.service.access import access_of
from fairway.plan.service.replica_split import ReplicaTarget, TrafficShares, speed
from fairway.spec.service import RolloutStrategy, ServiceSpec
from fairway.state.service import ReplicaPhase, ServiceReplica, ServiceState
from fairway.state.serving.route import WHOLE, RouteBackend, RouteHeaderMatch, RouteMirror, RouteObservation, RoutePlan
from fairway.units import quantity

METRICS = "/metrics"
"""Path of the metrics of Fairway's own server."""
HOLD_LIMIT = 1_000
"""Maximum number of requests that wait for the first replica."""


def routes(
    service: ServiceState,
    replicas: Sequence[ServiceReplica],
    shares: TrafficShares,
    parts: Mapping[int, ReplicaTarget],
    target: int,
) -> RoutePlan:
    """Return the router's configuration. `replicas` may get requests; `target` is the revision being released, or 0."""
    backends = tuple(
        RouteBackend(replica.name, replica.revision, replica.address, _protocol(service, replica.revision))
        for replica in sorted(replicas, key=lambda replica: replica.number)
        if replica.phase is ReplicaPhase.READY and replica.address
    )
    ready = {number: len(names) for number, names in replica_fleet.ready_names(replicas).items()}
    spec = service.spec
    mirror = shares.mirror if shares.mirror and ready.get(shares.mirror[0]) else None
    released = target and target in shares.serving and spec.rollout.strategy is not RolloutStrategy.SHADOW
    return RoutePlan(
        service=str(service.key),
        backends=backends,
        weights=weights(service, ready, shares, parts),
        matches=tuple(RouteHeaderMatch(rule.header, rule.value, target) for rule in spec.traffic.headers) if released else (),
        sticky=spec.traffic.sticky,
        mirror=RouteMirror(mirror[0], round(mirror[1] * WHOLE), _tolerance(spec)) if mirror else None,
        port=spec.port or service.port,
        host=spec.endpoint.bind,
        hosts=spec.endpoint.hosts,
        hold_seconds=quantity.seconds(spec.hold),
        hold_limit=0 if service.deleting else HOLD_LIMIT,
        access=access_of(service),
        observed=observed(service, bool(backends)),
    )


def _protocol(service: ServiceState, number: int) -> str:
    """Return the protocol of a revision's replicas; empty for Fairway's own server."""
    revision = service.revision(number)
    return str(revision.spec.protocol) if revision is not None and revision.spec.command else ""


def observed(service: ServiceState, has_replicas: bool) -> RouteObservation:
    """Return what the router publishes about the service, and which requests wake it.

    A service sleeps when it may scale to zero and has no replica, and the revision that served has not failed.
    """
    spec = service.spec
    revision = service.revision(service.stable) if service.stable else None
    name, _, version = revision.model.partition("@") if revision else (spec.model.partition("@")[0], "", "")
    may_sleep = spec.replicas.min == 0 and not service.deleting and revision is not None and not revision.failures
    return RouteObservation(
        model=name.rpartition("/")[2],
        version=version,
        ready=spec.ready,
        metrics=spec.metrics if spec.command else METRICS,
        probes_wake=spec.scaling.wake == "all",
        asleep=may_sleep and not has_replicas,
        access=round(quantity.percent(spec.logs.access) * WHOLE),
    )


def _tolerance(spec: ServiceSpec) -> float | None:
    outputs = spec.rollout.guard.outputs
    return quantity.number(outputs.tolerance) if outputs else None


def weights(
    service: ServiceState, ready: Mapping[int, int], shares: TrafficShares, parts: Mapping[int, ReplicaTarget]
) -> tuple[tuple[int, int], ...]:
    """Return (revision, weight) pairs that sum to `WHOLE`; empty when no replica is ready."""
    carried, uncarried = _own(service, ready, shares, parts)
    surplus = {
        number: speed(service, number) * (count - (parts[number].need if number in parts else 0))
        for number, count in ready.items()
    }
    mirrored = shares.mirror[0] if shares.mirror else None
    surplus = {number: spare for number, spare in surplus.items() if spare > 0 and number != mirrored and _serves(number, shares)}
    if uncarried > 0 and surplus:
        capacity = sum(surplus.values())
        # Surplus replicas take what they can serve. The excess is shared by all revisions in proportion to their weights.
        planned = sum(part.need * speed(service, number) for number, part in parts.items())
        taken = min(uncarried, capacity / planned) if planned and any(carried.values()) else uncarried
        for number, spare in surplus.items():
            carried[number] = carried.get(number, 0.0) + taken * spare / capacity
    total = sum(carried.values())
    if total <= 0:
        # No revision that should serve is ready, so all ready ones serve.
        carried = {number: float(count) for number, count in ready.items() if number != mirrored}
        total = sum(carried.values())
    return _whole({number: share / total for number, share in carried.items() if share > 0}) if total else ()


def _serves(number: int, shares: TrafficShares) -> bool:
    """Return whether a revision may take excess traffic: not a new one that has no share yet."""
    return number in shares.serving or number not in shares.coming


def _own(
    service: ServiceState, ready: Mapping[int, int], shares: TrafficShares, parts: Mapping[int, ReplicaTarget]
) -> tuple[dict[int, float], float]:
    """Return each revision's share as far as its ready replicas can serve it, and the sum of the rest."""
    unplanned = [number for number in ready if number not in shares.serving and number not in shares.coming]
    only_bad = bool(unplanned) and all(replica_fleet.is_bad(service, number) for number in unplanned)
    factor = replica_fleet.stress(service) if only_bad else 1.0
    shares_carried: dict[int, float] = {}
    uncarried = 0.0
    for number, share in shares.serving.items():
        need = parts[number].need * factor if number in parts else 0
        carried = share * min(1.0, ready.get(number, 0) / need) if need else share * bool(ready.get(number))
        shares_carried[number] = carried
        uncarried += share - carried
    return shares_carried, uncarried


def _whole(parts: dict[int, float]) -> tuple[tuple[int, int], ...]:
    """Return integer weights that sum to `WHOLE`; the rounding error is added to the largest."""
    rounded = {number: int(part * WHOLE) for number, part in parts.items()}
    largest = max(parts, key=lambda number: (parts[number], -number))
    rounded[largest] += WHOLE - sum(rounded.values())
    return tuple(sorted((number, weight) for number, weight in rounded.items() if weight))
