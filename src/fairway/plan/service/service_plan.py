"""One planning cycle of a service: the number of replicas, its split, and the routes. Pure and level-triggered.

Called again with the same state, `advance` requests nothing twice: a started replica is in `replicas` at the next call, and a
drained one is draining there. `stop` is repeated until the replica is gone; stopping a replica is idempotent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fairway.plan.service import autoscaler, replica_fleet, replica_split, rollout, route
from fairway.plan.service.measurement import ServiceMeasurements, ServiceSample
from fairway.state.service import ReplicaPhase, ScaleDecision, ServiceReplica, ServiceState
from fairway.state.serving.route import RoutePlan

__all__ = ["LOOK", "ScalingRule", "ServiceMeasurements", "ServicePlan", "ServiceSample", "advance"]

LOOK = 2.0
"""Seconds between two cycles of a service with replicas."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """The result of a cycle for one service."""

    service: ServiceState
    """The new value to record. Its `replicas_made` includes those of `start`: they get the last numbers, in order."""
    start: tuple[int, ...] = ()
    """The revision number of each replica to start."""
    drain: tuple[str, ...] = ()
    """Names of replicas that get no new requests from now on; `routes` no longer contains them."""
    stop: tuple[str, ...] = ()
    """Names of replicas to stop: drained and idle, past their grace period, or surplus and not ready."""
    routes: RoutePlan | None = None
    """The router's configuration; None when the service is being deleted and has no replicas left."""
    events: tuple[tuple[str, str], ...] = ()
    """(reason, message)."""
    wake_at: float | None = None


class ScalingRule(Protocol):
    """The function that sets the number of replicas over all revisions: `autoscale.decide`, or another one in a simulation."""

    def __call__(
        self,
        service: ServiceState,
        ready: dict[int, frozenset[str]],
        shares: dict[int, float],
        measured: ServiceMeasurements,
        now: float,
        *,
        may_shrink: bool,
    ) -> ScaleDecision:
        """Return the number with its reason."""
        ...


def advance(
    service: ServiceState,
    replicas: Sequence[ServiceReplica],
    measured: ServiceMeasurements,
    now: float,
    rule: ScalingRule = autoscaler.decide,
) -> ServicePlan:
    """Return the next actions of a service, given its replicas and recent measurements."""
    if service.deleting:
        return _deleting(service, replicas, measured, now)
    before = service
    service = replica_fleet.learn_batching(replica_fleet.learn(service, replicas, now), replicas, measured)
    service, events = rollout.judged(service, replicas, measured, now)
    under_way = rollout.is_active(service.rollout) and bool(service.stable)
    ready = replica_fleet.ready_names(replicas)
    next_shares = rollout.shares(service, now).coming
    service = replace(service, scale=rule(service, ready, next_shares, measured, now, may_shrink=not under_way))
    service, steps = rollout.stepped(service, replicas, now)
    shares = rollout.shares(service, now)
    parts = _placed(service, replica_split.parts(service, shares), replicas, now)
    orders = replica_fleet.orders(service, replicas, parts, measured, now)
    service = replace(
        service,
        replicas_made=service.replicas_made + len(orders.start),
        message=_message(service, replicas, parts, now),
    )
    target = service.rollout.target if service.rollout and under_way else 0
    staying = [replica for replica in replicas if replica.name not in orders.drain]
    return ServicePlan(
        service,
        orders.start,
        orders.drain,
        orders.stop,
        route.routes(service, staying, shares, parts, target),
        (*events, *steps, *_scaled(before, service)),
        _wake(service, replicas, orders.wake_at, now),
    )


def _placed(
    service: ServiceState, parts: dict[int, replica_split.ReplicaTarget], replicas: Sequence[ServiceReplica], now: float
) -> dict[int, replica_split.ReplicaTarget]:
    """Return the targets of each revision, adapted where there is no capacity for surge replicas.

    After a rollback the same applies when the good revision finds no capacity: the bad revision must not block it.
    """
    under_way = service.rollout if rollout.is_active(service.rollout) and service.stable else None
    newcomer = under_way.target if under_way else service.stable
    tight = service.spec.rollout.in_place or (not under_way and replica_fleet.without_room(replicas, newcomer, now))
    ready = {number: len(names) for number, names in replica_fleet.ready_names(replicas).items()}
    return replica_split.in_place(service, parts, ready, newcomer) if tight else parts


def _deleting(
    service: ServiceState, replicas: Sequence[ServiceReplica], measured: ServiceMeasurements, now: float
) -> ServicePlan:
    """Drain and stop all replicas of a service that is being deleted."""
    orders = replica_fleet.orders(service, replicas, {}, measured, now)
    has_replicas = any(replica.phase is not ReplicaPhase.GONE for replica in replicas)
    routes = route.routes(service, (), replica_split.TrafficShares(), {}, 0) if has_replicas else None
    return ServicePlan(service, (), orders.drain, orders.stop, routes, (), now + LOOK if has_replicas else None)


def _scaled(before: ServiceState, after: ServiceState) -> tuple[tuple[str, str], ...]:
    old, new = before.scale.wanted, after.scale.wanted
    if old == new:
        return ()
    return (("ScaledUp" if new > old else "ScaledDown", f"{old} -> {new} replicas ({after.scale.rule}): {after.scale.why}"),)


def _message(
    service: ServiceState, replicas: Sequence[ServiceReplica], parts: dict[int, replica_split.ReplicaTarget], now: float
) -> str:
    """Return a text about what blocks the service; empty when nothing does."""
    for number in sorted(parts):
        revision = service.revision(number)
        members = [replica for replica in replicas if replica.revision == number]
        if (
            revision
            and revision.failures
            and sum(replica.phase is ReplicaPhase.READY for replica in members) < parts[number].wanted
        ):
            failed = [replica for replica in members if replica.phase is ReplicaPhase.GONE and replica.failed]
            last = max(failed, key=lambda replica: (replica.since, replica.number), default=None)
            text = f"{last.name}: {last.message}" if last else f"a replica of r{number} ended by itself"
            return f"{text} ({revision.failures} in a row)"
        waiting = replica_fleet.without_room(replicas, number, now)
        if waiting:
            return f"{waiting.name} waits: {waiting.message}{rollout.way_out(service, number)}"
    return ""


def _wake(service: ServiceState, replicas: Sequence[ServiceReplica], due: float | None, now: float) -> float | None:
    has_live = any(replica.phase is not ReplicaPhase.GONE for replica in replicas)
    times = [due, rollout.wake_at(service), now + LOOK if has_live or service.scale.wanted else None]
    return min((time for time in times if time is not None and time > now), default=None)
