"""The wire format of plans and loads between the daemon and its routers; the plan's file has the same format."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any, TypeVar

import msgspec

from fairway.errors import BugError
from fairway.serving.router.counter import is_bounded
from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, OutputComparison, RevisionLoad, RouteLoad
from fairway.state.serving.route import RoutePlan

K = TypeVar("K")
V = TypeVar("V", RevisionLoad, BackendLoad)


class GuardedPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan with access rules, as sent over the wire.

    A router of a version without such rules finds no `service` in it and refuses it, so that it never follows the routes
    without the rules.
    """

    guarded: RoutePlan


_GUARDED = b'{"guarded":'
_PLAN = msgspec.json.Decoder(RoutePlan)
_GUARDED_PLAN = msgspec.json.Decoder(GuardedPlan)
_LOAD = msgspec.json.Decoder(RouteLoad)
_LONGEST = 1e15
"""Limit on any sum of times, in seconds."""


def encode_plan(plan: RoutePlan) -> bytes:
    """Return the plan as one line."""
    return msgspec.json.encode(plan if plan.access is None else GuardedPlan(plan))


def decode_plan(data: bytes) -> RoutePlan:
    """Return the plan; raise `BugError` if no router can follow it."""
    try:
        plan = _GUARDED_PLAN.decode(data).guarded if data.startswith(_GUARDED) else _PLAN.decode(data)
    except msgspec.MsgspecError as problem:
        message = f"the route plan cannot be read: {problem}"
        raise BugError(message, fix="send the plan again") from None
    check_plan(plan)
    return plan


def check_plan(plan: RoutePlan) -> None:
    """Raise `BugError` for a plan that no router can follow."""
    for backend in plan.backends:
        host, _, port = backend.address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            message = f"{plan.service}: backend {backend.name} has the invalid address {backend.address!r}"
            raise BugError(message, fix="write HOST:PORT, such as 127.0.0.1:40123")


def encode_load(load: RouteLoad) -> bytes:
    """Return the load as one line."""
    return msgspec.json.encode(load)


def decode_load(data: bytes) -> RouteLoad:
    """Return the load; raise `ValueError` if it cannot be read or holds a number that no router can have counted.

    Outcomes whose sums are too large to be compared are left out: a router of an earlier version may have accepted them.
    """
    try:
        load = _LOAD.decode(data)
    except (msgspec.MsgspecError, RecursionError) as problem:
        message = f"the load cannot be read: {problem}"
        raise ValueError(message) from None
    _check_load(load)
    return replace(load, revisions={number: _with_bounded_outcomes(revision) for number, revision in load.revisions.items()})


def moved(load: RouteLoad, now: float) -> RouteLoad:
    """Convert a load with times relative to the request to the caller's clock."""
    since = None if load.held_since is None else now + load.held_since
    return replace(load, time=now, held_since=since, key_uses={key: now + used for key, used in load.key_uses.items()})


def _check_load(load: RouteLoad) -> None:
    """Raise `ValueError` for a number that is not finite, negative where it counts, or beyond 64 bits."""
    counted = [load.held, load.arrived, load.expired]
    seconds = [load.time, load.held_since or 0.0, *load.key_uses.values()]
    for revision in load.revisions.values():
        counted += [revision.arrived, revision.answered, revision.client_errors, revision.failed, revision.rejected]
        counted += [revision.mirrored, revision.mirror_failed, revision.mirror_client_errors, *revision.latency]
        seconds += [revision.latency_sum, revision.outputs.largest]
        outputs = revision.outputs
        counted += [
            outputs.compared,
            outputs.differing,
            outputs.relaid,
            outputs.classified,
            outputs.reclassified,
            outputs.non_finite,
        ]
        counted += [outputs.restored, outputs.incomparable, outputs.skipped]
        if len(revision.latency) not in (0, len(LATENCY_BOUNDS) + 1):
            message = f"the load has an unexpected number of latency buckets: {len(revision.latency)}"
            raise ValueError(message)
    for backend in load.backends.values():
        counted += [backend.in_flight, backend.answered, backend.failed, backend.refused]
        seconds.append(backend.busy_seconds)
    if not all(0 <= number < 2**63 for number in counted) or not all(abs(number) < _LONGEST for number in seconds):
        message = "the load has a number out of range"
        raise ValueError(message)


def _with_bounded_outcomes(load: RevisionLoad) -> RevisionLoad:
    bounded = {name: outcome for name, outcome in load.outcomes.items() if is_bounded(outcome)}
    return load if len(bounded) == len(load.outcomes) else replace(load, outcomes=bounded)


def add_loads(loads: list[RouteLoad]) -> RouteLoad:
    """Return the sum of the loads of one service's processes: during a takeover there are two.

    The epoch names all of them, so that counters are compared only while the same processes count.
    """
    if len(loads) == 1:
        return loads[0]
    since = [load.held_since for load in loads if load.held_since is not None]
    return replace(
        loads[0],
        epoch="+".join(sorted(load.epoch for load in loads)),
        held=sum(load.held for load in loads),
        held_since=min(since, default=None),
        arrived=sum(load.arrived for load in loads),
        expired=sum(load.expired for load in loads),
        revisions=_added([load.revisions for load in loads]),
        backends=_added([load.backends for load in loads]),
        key_uses={key: max(load.key_uses.get(key, -math.inf) for load in loads) for load in loads for key in load.key_uses},
    )


def _added(tables: list[dict[K, V]]) -> dict[K, V]:
    """Return one table in which the values of equal keys are added, field by field."""
    whole: dict[K, V] = {}
    for table in tables:
        for key, value in table.items():
            whole[key] = _sum(whole[key], value) if key in whole else value
    return whole


def _sum(one: V, other: V) -> V:
    return type(one)(*(_plus(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)))


def _plus(one: Any, other: Any) -> Any:
    if isinstance(one, OutputComparison):
        return one.plus(other)
    if isinstance(one, dict):
        return {name: _plus(one.get(name, ()), other.get(name, ())) for name in {**one, **other}}
    if isinstance(one, tuple):
        return tuple(a + b for a, b in zip(one, other, strict=True)) if one and other else one or other
    return one + other
