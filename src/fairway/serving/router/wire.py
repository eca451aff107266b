"""Plans and loads as they go between the daemon and its routers, and into the plan's file."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any, TypeVar

import msgspec

from fairway.errors import BugError
from fairway.state.load import BackendLoad, RevisionLoad, RouteLoad
from fairway.state.route import RoutePlan

K = TypeVar("K")
V = TypeVar("V", RevisionLoad, BackendLoad)

_PLAN = msgspec.json.Decoder(RoutePlan)
_LOAD = msgspec.json.Decoder(RouteLoad)


def encode_plan(plan: RoutePlan) -> bytes:
    """One line."""
    return msgspec.json.encode(plan)


def decode_plan(data: bytes) -> RoutePlan:
    """The plan; `BugError` when it is none that can be followed."""
    try:
        plan = _PLAN.decode(data)
    except msgspec.MsgspecError as problem:
        message = f"a route plan that cannot be read: {problem}"
        raise BugError(message, fix="put the plan again") from None
    check_plan(plan)
    return plan


def check_plan(plan: RoutePlan) -> None:
    """Raise `BugError` for a plan that no router can follow."""
    for backend in plan.backends:
        host, _, port = backend.address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            message = f"{plan.service}: backend {backend.name} has the address {backend.address!r}"
            raise BugError(message, fix="write HOST:PORT, such as 127.0.0.1:40123")


def encode_load(load: RouteLoad) -> bytes:
    """One line."""
    return msgspec.json.encode(load)


def decode_load(data: bytes) -> RouteLoad:
    """The load."""
    return _LOAD.decode(data)


def add_loads(loads: list[RouteLoad]) -> RouteLoad:
    """What the processes of one service saw together: while one takes over from another there are two.

    The epoch names all of them, so that counters compare only while the same ones count.
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
    )


def _added(tables: list[dict[K, V]]) -> dict[K, V]:
    """The tables with equal keys added, field by field."""
    whole: dict[K, V] = {}
    for table in tables:
        for key, value in table.items():
            whole[key] = _sum(whole[key], value) if key in whole else value
    return whole


def _sum(one: V, other: V) -> V:
    mine, theirs = astuple(one), astuple(other)
    return type(one)(*(_plus(a, b) for a, b in zip(mine, theirs, strict=True)))


def _plus(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {name: _plus(one.get(name, ()), other.get(name, ())) for name in {**one, **other}}
    if isinstance(one, tuple):
        return tuple(a + b for a, b in zip(one, other, strict=True)) if one and other else one or other
    return one + other
