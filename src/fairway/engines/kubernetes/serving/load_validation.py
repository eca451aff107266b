"""Validates the counters that routers and replicas report: bounded, so that no sum, rate or record of them can fail. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fairway.state.serving.load import LATENCY_BOUNDS, ReplicaLoad, RevisionLoad, RouteLoad
from fairway.units.number import finite, int64

MOST = 2**53
"""Limit of a counter: exact as a float, and sums over many routers stay within 64 bits."""
MOST_SECONDS = 1e15
MOST_ENTRIES = 10_000
"""Limit of revisions, backends or outcomes."""
LONGEST_NAME = 500
_SQUARES = 1e200
"""Limit of reported sums: their squares and quotients stay finite."""


class InvalidLoadError(ValueError):
    """A reported load has an impossible value; the message names the field and the value."""


def checked_route(load: RouteLoad) -> RouteLoad:
    """Return the load of a router. Raises `InvalidLoadError` for an impossible number."""
    _check(load)
    for name, table in (("revisions", load.revisions), ("backends", load.backends)):
        if len(table) > MOST_ENTRIES:
            message = f"{name} has {len(table)} entries"
            raise InvalidLoadError(message)
    for number, revision in load.revisions.items():
        if int64(number) is None:
            message = f"the revision number {str(number)[:40]} is out of range"
            raise InvalidLoadError(message)
        _check(revision)
        _check(revision.outputs)
        _check_revision(revision)
    for backend in load.backends.values():
        _check(backend)
    return replace(load, epoch=load.epoch[:LONGEST_NAME])


def checked_replica(load: ReplicaLoad) -> ReplicaLoad:
    """Return the load of a replica. Raises `InvalidLoadError` for an impossible number."""
    _check(load)
    return load


def _check_revision(revision: RevisionLoad) -> None:
    if len(revision.latency) not in (0, len(LATENCY_BOUNDS) + 1):
        message = f"latency has {len(revision.latency)} buckets, and {len(LATENCY_BOUNDS) + 1} were expected"
        raise InvalidLoadError(message)
    if any(not _is_count(number) for number in revision.latency):
        message = "latency has a bucket that is not a valid count"
        raise InvalidLoadError(message)
    if len(revision.outcomes) > MOST_ENTRIES:
        message = f"outcomes has {len(revision.outcomes)} entries"
        raise InvalidLoadError(message)
    for name, (count, *sums) in revision.outcomes.items():
        if len(name) > LONGEST_NAME or not _is_count(count) or any(not _is_sum(number) for number in sums):
            message = f"outcome {name[:40]!r} has impossible numbers"
            raise InvalidLoadError(message)


def _check(load: Any) -> None:
    """Check that counters are counts and durations finite; fields of other types cannot be wrong."""
    checks: dict[str, Callable[[Any], bool]] = {"int": _is_count, "float": _is_duration}
    for attribute in dataclasses.fields(load):
        kind, value = str(attribute.type), getattr(load, attribute.name)
        check = checks.get(kind.removesuffix(" | None"))
        if check is None or (value is None and kind.endswith("None")):
            continue
        if not check(value):
            message = f"{attribute.name} is {_shown(value)}"
            raise InvalidLoadError(message)


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
