"""Where requests go: to ready replicas, by the parts of a release, never to fewer than the traffic needs.

A revision whose ready replicas are too few for its part gives the rest to replicas that are there beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairway.plan.service import fleet
from fairway.plan.service.access import access_of
from fairway.plan.service.split import Part, Shares, speed
from fairway.spec.service import RolloutStrategy, ServiceSpec
from fairway.state.route import WHOLE, Backend, HeaderMatch, Mirror, RouteObservation, RoutePlan
from fairway.state.service import Replica, ReplicaPhase, Service
from fairway.units import quantity

METRICS = "/metrics"
"""Where our own server shows its metrics."""
HOLD_LIMIT = 1_000
"""Requests that may wait for the first replica."""


def routes(service: Service, replicas: Sequence[Replica], shares: Shares, parts: Mapping[int, Part], target: int) -> RoutePlan:
    """What the router is to know. `replicas`: those that may get requests; `target`: the revision on its way in, or 0."""
    backends = tuple(
        Backend(replica.name, replica.revision, replica.address, _protocol(service, replica.revision))
        for replica in sorted(replicas, key=lambda replica: replica.number)
        if replica.phase is ReplicaPhase.READY and replica.address
    )
    ready = {number: len(names) for number, names in fleet.ready_names(replicas).items()}
    spec = service.spec
    mirror = shares.mirror if shares.mirror and ready.get(shares.mirror[0]) else None
    released = target and target in shares.serving and spec.rollout.strategy is not RolloutStrategy.SHADOW
    return RoutePlan(
        service=str(service.key),
        backends=backends,
        weights=weights(service, ready, shares, parts),
        matches=tuple(HeaderMatch(rule.header, rule.value, target) for rule in spec.traffic.headers) if released else (),
        sticky=spec.traffic.sticky,
        mirror=Mirror(mirror[0], round(mirror[1] * WHOLE), _tolerance(spec)) if mirror else None,
        port=spec.port or service.port,
        host=spec.endpoint.bind,
        hosts=spec.endpoint.hosts,
        hold_seconds=quantity.seconds(spec.hold),
        hold_limit=0 if service.deleting else HOLD_LIMIT,
        access=access_of(service),
        observed=observed(service, bool(backends)),
    )


def _protocol(service: Service, number: int) -> str:
    """What the replicas of a revision speak; empty for our own server."""
    revision = service.revision(number)
    return str(revision.spec.protocol) if revision is not None and revision.spec.command else ""


def observed(service: Service, has_replicas: bool) -> RouteObservation:
    """What the router shows of the service, and which requests wake it.

    A service sleeps when it may have no replica and has none, and the revision that served did not fail.
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


def weights(service: Service, ready: Mapping[int, int], shares: Shares, parts: Mapping[int, Part]) -> tuple[tuple[int, int], ...]:
    """(revision, parts of `WHOLE`), summing to `WHOLE`; nothing when nobody is ready."""
    found, left = _own(service, ready, shares, parts)
    beside = {
        number: speed(service, number) * (count - (parts[number].need if number in parts else 0))
        for number, count in ready.items()
    }
    mirrored = shares.mirror[0] if shares.mirror else None
    beside = {number: spare for number, spare in beside.items() if spare > 0 and number != mirrored and _serves(number, shares)}
    if left > 0 and beside:
        able = sum(beside.values())
        # They take what they can carry. What nobody can is shared by all, each as far as it can do more than the others.
        planned = sum(part.need * speed(service, number) for number, part in parts.items())
        taken = min(left, able / planned) if planned and any(found.values()) else left
        for number, spare in beside.items():
            found[number] = found.get(number, 0.0) + taken * spare / able
    total = sum(found.values())
    if total <= 0:
        # Nobody of those who should serve is ready: whoever is, does.
        found = {number: float(count) for number, count in ready.items() if number != mirrored}
        total = sum(found.values())
    return _whole({number: share / total for number, share in found.items() if share > 0}) if total else ()


def _serves(number: int, shares: Shares) -> bool:
    """Whether a revision may take what others cannot: not one that has no part yet, on its way in."""
    return number in shares.serving or number not in shares.coming


def _own(service: Service, ready: Mapping[int, int], shares: Shares, parts: Mapping[int, Part]) -> tuple[dict[int, float], float]:
    """Each revision's part as far as its ready replicas carry it, and what is left."""
    strangers = [number for number in ready if number not in shares.serving and number not in shares.coming]
    only_bad = bool(strangers) and all(fleet.is_bad(service, number) for number in strangers)
    factor = fleet.stress(service) if only_bad else 1.0
    found: dict[int, float] = {}
    left = 0.0
    for number, share in shares.serving.items():
        need = parts[number].need * factor if number in parts else 0
        carried = share * min(1.0, ready.get(number, 0) / need) if need else share * bool(ready.get(number))
        found[number] = carried
        left += share - carried
    return found, left


def _whole(parts: dict[int, float]) -> tuple[tuple[int, int], ...]:
    """Whole weights that sum to `WHOLE`: what rounding leaves goes to the largest."""
    rounded = {number: int(part * WHOLE) for number, part in parts.items()}
    largest = max(parts, key=lambda number: (parts[number], -number))
    rounded[largest] += WHOLE - sum(rounded.values())
    return tuple(sorted((number, weight) for number, weight in rounded.items() if weight))
