"""One look at a service, and what follows: the number, its split, the routes. Pure and level-triggered.

Called again with the same world, `advance` asks for nothing twice: a replica that was asked for is in `replicas` at the next
call, one that was drained is draining there. `stop` is said until the replica is gone; ending it twice is ending it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fairway.plan.service import autoscale, fleet, rollout, route, split
from fairway.plan.service.measured import Measured, Sample
from fairway.state.route import RoutePlan
from fairway.state.service import Replica, ReplicaPhase, Scale, Service

__all__ = ["LOOK", "Measured", "Rule", "Sample", "ServicePlan", "advance"]

LOOK = 2.0
"""Seconds until a service with replicas is looked at again."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """What is to be done for one service."""

    service: Service
    """The new value to remember. Its `replicas_made` counts those of `start` already: they get the last numbers, in order."""
    start: tuple[int, ...] = ()
    """One revision number for each replica to be started."""
    drain: tuple[str, ...] = ()
    """Names of replicas that get no new requests from now on; `routes` no longer has them."""
    stop: tuple[str, ...] = ()
    """Names of replicas to be told to end: drained and idle, over their grace, or of no use."""
    routes: RoutePlan | None = None
    """What the router is to know; None: the service is being deleted and has nothing left."""
    events: tuple[tuple[str, str], ...] = ()
    """(reason, message)."""
    wake_at: float | None = None


class Rule(Protocol):
    """What sets the number of replicas over all revisions: `autoscale.decide`, or another one in a simulation."""

    def __call__(
        self,
        service: Service,
        ready: dict[int, frozenset[str]],
        shares: dict[int, float],
        measured: Measured,
        now: float,
        *,
        may_shrink: bool,
    ) -> Scale:
        """The number with its reason."""
        ...


def advance(
    service: Service,
    replicas: Sequence[Replica],
    measured: Measured,
    now: float,
    rule: Rule = autoscale.decide,
) -> ServicePlan:
    """What a service does next, given its replicas and what was measured lately."""
    if service.deleting:
        return _deleting(service, replicas, measured, now)
    before = service
    service = fleet.learn_batching(fleet.learn(service, replicas, now), replicas, measured)
    service, events = rollout.judged(service, replicas, measured, now)
    under_way = rollout.is_active(service.rollout) and bool(service.stable)
    ready = fleet.ready_names(replicas)
    coming = rollout.shares(service, now).coming
    service = replace(service, scale=rule(service, ready, coming, measured, now, may_shrink=not under_way))
    service, steps = rollout.stepped(service, replicas, now)
    shares = rollout.shares(service, now)
    parts = _placed(service, split.parts(service, shares), replicas, now)
    orders = fleet.orders(service, replicas, parts, measured, now)
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


def _placed(service: Service, parts: dict[int, split.Part], replicas: Sequence[Replica], now: float) -> dict[int, split.Part]:
    """What each revision should have, where there is no room for more than the number.

    On the way back that is so as well when the good revision finds no room: what was sent back must not keep it out.
    """
    under_way = service.rollout if rollout.is_active(service.rollout) and service.stable else None
    newcomer = under_way.target if under_way else service.stable
    tight = service.spec.rollout.in_place or (not under_way and fleet.without_room(replicas, newcomer, now))
    ready = {number: len(names) for number, names in fleet.ready_names(replicas).items()}
    return split.in_place(service, parts, ready, newcomer) if tight else parts


def _deleting(service: Service, replicas: Sequence[Replica], measured: Measured, now: float) -> ServicePlan:
    """Everything is drained and ended; then there is nothing left."""
    orders = fleet.orders(service, replicas, {}, measured, now)
    left = any(replica.phase is not ReplicaPhase.GONE for replica in replicas)
    routes = route.routes(service, (), split.Shares(), {}, 0) if left else None
    return ServicePlan(service, (), orders.drain, orders.stop, routes, (), now + LOOK if left else None)


def _scaled(before: Service, after: Service) -> tuple[tuple[str, str], ...]:
    old, new = before.scale.wanted, after.scale.wanted
    if old == new:
        return ()
    return (("ScaledUp" if new > old else "ScaledDown", f"{old} -> {new} replicas ({after.scale.rule}): {after.scale.why}"),)


def _message(service: Service, replicas: Sequence[Replica], parts: dict[int, split.Part], now: float) -> str:
    """What is in its way, in words; empty when nothing is."""
    for number in sorted(parts):
        revision = service.revision(number)
        mine = [replica for replica in replicas if replica.revision == number]
        if revision and revision.failures and sum(replica.phase is ReplicaPhase.READY for replica in mine) < parts[number].wanted:
            gone = [replica for replica in mine if replica.phase is ReplicaPhase.GONE and replica.failed]
            last = max(gone, key=lambda replica: (replica.since, replica.number), default=None)
            said = f"{last.name}: {last.message}" if last else f"a replica of r{number} ended by itself"
            return f"{said} ({revision.failures} in a row)"
        waiting = fleet.without_room(replicas, number, now)
        if waiting:
            return f"{waiting.name} waits: {waiting.message}{rollout.way_out(service, number)}"
    return ""


def _wake(service: Service, replicas: Sequence[Replica], due: float | None, now: float) -> float | None:
    live = any(replica.phase is not ReplicaPhase.GONE for replica in replicas)
    times = [due, rollout.wake_at(service), now + LOOK if live or service.scale.wanted else None]
    return min((time for time in times if time is not None and time > now), default=None)
