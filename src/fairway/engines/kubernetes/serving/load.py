"""What routers and replicas in pods say they counted: bounded, so that no sum, rate or record of it can fail. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fairway.state.load import LATENCY_BOUNDS, ReplicaLoad, RevisionLoad, RouteLoad
from fairway.units.number import finite, int64

MOST = 2**53
"""Of a counter: exact as a float, and sums of many routers stay within 64 bits."""
MOST_SECONDS = 1e15
MOST_ENTRIES = 10_000
"""Revisions, backends or outcomes."""
LONGEST_NAME = 500
_SQUARES = 1e200
"""Of sums that are reported by others: their squares and quotients stay finite."""


class BadLoadError(ValueError):
    """A load that cannot be: which field, and what it says."""


def checked_route(load: RouteLoad) -> RouteLoad:
    """The load of a router. Raises `BadLoadError` where one of its numbers cannot be."""
    _check(load)
    for name, table in (("revisions", load.revisions), ("backends", load.backends)):
        if len(table) > MOST_ENTRIES:
            message = f"{name} has {len(table)} entries"
            raise BadLoadError(message)
    for number, revision in load.revisions.items():
        if int64(number) is None:
            message = f"a revision is called {str(number)[:40]}"
            raise BadLoadError(message)
        _check(revision)
        _check(revision.outputs)
        _check_revision(revision)
    for backend in load.backends.values():
        _check(backend)
    return replace(load, epoch=load.epoch[:LONGEST_NAME])


def checked_replica(load: ReplicaLoad) -> ReplicaLoad:
    """The load of a replica. Raises `BadLoadError` where one of its numbers cannot be."""
    _check(load)
    return load


def _check_revision(revision: RevisionLoad) -> None:
    if len(revision.latency) not in (0, len(LATENCY_BOUNDS) + 1):
        message = f"latency has {len(revision.latency)} buckets, and {len(LATENCY_BOUNDS) + 1} were expected"
        raise BadLoadError(message)
    if any(not _is_count(one) for one in revision.latency):
        message = "latency has a bucket that is no count"
        raise BadLoadError(message)
    if len(revision.outcomes) > MOST_ENTRIES:
        message = f"outcomes has {len(revision.outcomes)} entries"
        raise BadLoadError(message)
    for name, (often, *sums) in revision.outcomes.items():
        if len(name) > LONGEST_NAME or not _is_count(often) or any(not _is_sum(one) for one in sums):
            message = f"outcome {name[:40]!r} has numbers that cannot be"
            raise BadLoadError(message)


def _check(load: Any) -> None:
    """Counters are counts, seconds are finite; what else there is has no type that can be wrong."""
    checks: dict[str, Callable[[Any], bool]] = {"int": _is_count, "float": _is_duration}
    for one in dataclasses.fields(load):
        kind, value = str(one.type), getattr(load, one.name)
        check = checks.get(kind.removesuffix(" | None"))
        if check is None or (value is None and kind.endswith("None")):
            continue
        if not check(value):
            message = f"{one.name} is {_shown(value)}"
            raise BadLoadError(message)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _is_duration(value: Any) -> bool:
    number = finite(value)
    return number is not None and abs(number) <= MOST_SECONDS


def _is_sum(value: Any) -> bool:
    number = finite(value)
    return number is not None and abs(number) <= _SQUARES


def _shown(value: Any) -> str:
    return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else repr(value)[:40]
