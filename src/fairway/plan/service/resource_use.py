"""Resource use of replicas: guards of the replica number, and the utilisation of servers without metrics of their own.

need = use of all replicas / allowed use of one

This is the rule of the Kubernetes HorizontalPodAutoscaler, for processors and for GPUs. With a measured rate it is only a
guard: it adds replicas where the rate alone would require fewer, and keeps those that the use requires. Memory adds no
replicas, since another replica does not reduce the memory of the first; but none is removed while memory is short.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairway.plan.service.measurement import ServiceMeasurements
from fairway.spec.service import ScalingPolicy
from fairway.state.serving.load import ReplicaUse
from fairway.units import number, quantity

WINDOW = 30.0
"""Seconds over which use is averaged, so that short peaks do not count."""
_LOOKS = 3
"""Minimum number of samples."""
_SOON = 15.0
"""Seconds over which concurrent requests are averaged: they change faster than the use of processors."""
_NAMES = {"cpu": "cores", "gpu": "GPUs"}


@dataclass(frozen=True, slots=True)
class FleetUse:
    """Recent use of all ready replicas together: 2.0 of `cpu` is the full allotment of two. None without enough data.

    The sum is used because it does not change when a replica is added or removed.
    """

    cpu: float | None = None
    gpu: float | None = None
    at_once: float | None = None
    """Requests in flight, as counted by the router."""
    memory: float | None = None
    """Average memory use of each replica."""


@dataclass(frozen=True, slots=True)
class ReplicaNeed:
    """The number of replicas that a resource requires, its rule, and the explanation."""

    need: float
    rule: str
    why: str


def of_replicas(measured: ServiceMeasurements, names: frozenset[str]) -> FleetUse:
    """Return the recent use of all replicas, and the memory use of the named ones."""
    if measured.last is None:
        return FleetUse()
    uses_by_time: dict[float, dict[str, ReplicaUse]] = {}
    for sample in measured.since(measured.last.time - WINDOW):
        for name, use in sample.use.items():
            uses_by_time.setdefault(use.time, {})[name] = use
    if len(uses_by_time) < _LOOKS:
        return FleetUse(at_once=_at_once(measured))
    totals = [_total(uses) for uses in uses_by_time.values()]
    memory = _sound(use.memory for uses in uses_by_time.values() for name, use in uses.items() if name in names)
    return FleetUse(
        _average([cpu for cpu, _ in totals if cpu is not None]),
        _average([gpu for _, gpu in totals if gpu is not None]),
        _at_once(measured),
        _average(memory),
    )


def _total(look: dict[str, ReplicaUse]) -> tuple[float | None, float | None]:
    cpu = _sound(use.cpu for use in look.values())
    gpu = _sound(use.gpu for use in look.values())
    return sum(cpu) if cpu else None, sum(gpu) if gpu else None


def _sound(values: Iterable[float | None]) -> list[float]:
    """Return the plausible values."""
    return [finite for value in values if (finite := number.finite(value)) is not None and finite >= 0.0]


def _at_once(measured: ServiceMeasurements) -> float | None:
    last = measured.last
    routes = [sample.route for sample in measured.since(last.time - _SOON) if sample.route] if last else []
    return _average([float(sum(max(0, backend.in_flight) for backend in route.backends.values())) for route in routes])


def _average(values: list[float]) -> float | None:
    return number.ratio(sum(values), len(values)) if values else None


def guard(scaling: ScalingPolicy, use: FleetUse, ready: int) -> ReplicaNeed | None:
    """Return the larger need of processors and GPUs; None if neither is known, or the document does not guard them."""
    needs = [
        ReplicaNeed(used / quantity.percent(allowed), rule, f"{_said(rule, used, ready)}; they should use at most {allowed}")
        for rule, used, allowed in (("cpu", use.cpu, scaling.cpu), ("gpu", use.gpu, scaling.gpu))
        if used is not None and quantity.percent(allowed) > 0
    ]
    return max(needs, key=lambda strain: strain.need, default=None)


def busy(scaling: ScalingPolicy, use: FleetUse, ready: int) -> ReplicaNeed | None:
    """Return the need of servers without metrics of their own, at the target utilisation; None without data.

    Their utilisation is that of their processors, their GPUs or their concurrent requests, whichever is highest.
    """
    target = quantity.percent(scaling.utilisation) or 0.01
    utilisations = [
        (used, rule, _said(rule, used, ready)) for rule, used in (("cpu", use.cpu), ("gpu", use.gpu)) if used is not None
    ]
    if use.at_once is not None:
        text = f"{use.at_once:.3g} requests at once, and a replica can take {scaling.concurrency}"
        utilisations.append((use.at_once / scaling.concurrency, "requests", text))
    needs = [ReplicaNeed(used / target, rule, f"{text}; the target is {target:.0%}") for used, rule, text in utilisations]
    return max(needs, key=lambda strain: strain.need, default=None)


def _said(rule: str, used: float, ready: int) -> str:
    return f"replicas use {used / max(1, ready):.0%} of their {_NAMES[rule]}"


def short_of_memory(scaling: ScalingPolicy, use: FleetUse) -> str:
    """Return why memory prevents removing replicas; empty when memory is not short."""
    allowed = quantity.percent(scaling.memory)
    if not allowed or use.memory is None or use.memory < allowed:
        return ""
    return f"replicas use {use.memory:.0%} of their memory; none is removed at {scaling.memory} or more"
