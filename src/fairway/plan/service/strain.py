"""What replicas use of the machine: the guards of the number, and how busy a server is that says nothing of itself.

    need = what all replicas use / what one is allowed

This is the rule of the Kubernetes HorizontalPodAutoscaler, for processors and for GPUs. Beside a measured rate it only guards:
it adds replicas where the rate says that there are enough, and keeps those that are needed for it. Memory adds nothing: what
a replica holds does not become less beside another one; but nothing goes while it is short.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairway.plan.service.measured import Measured
from fairway.spec.service import Scaling
from fairway.state.load import ReplicaUse
from fairway.units import number, quantity

WINDOW = 30.0
"""Seconds over which use is averaged: a moment is none."""
_LOOKS = 3
"""Fewer looks than this say nothing."""
_SOON = 15.0
"""Seconds over which requests at once are averaged: they come and go faster than processors tire."""
_NAMES = {"cpu": "cores", "gpu": "GPUs"}


@dataclass(frozen=True, slots=True)
class Use:
    """What ready replicas used lately, all together: 2 of `cpu` is all that two of them were given. None: too little was seen.

    It is the sum that counts, because it stays what it is when a replica comes or goes.
    """

    cpu: float | None = None
    gpu: float | None = None
    at_once: float | None = None
    """Requests under way, as the router sees them."""
    memory: float | None = None
    """Of each, on the average."""


@dataclass(frozen=True, slots=True)
class Strain:
    """Replicas that something asks for, what it is, and the sentence."""

    need: float
    rule: str
    why: str


def of_replicas(measured: Measured, names: frozenset[str]) -> Use:
    """What was used lately, and how much memory the named ones hold."""
    if measured.last is None:
        return Use()
    looks: dict[float, dict[str, ReplicaUse]] = {}
    for sample in measured.since(measured.last.time - WINDOW):
        for name, use in sample.use.items():
            looks.setdefault(use.time, {})[name] = use
    if len(looks) < _LOOKS:
        return Use(at_once=_at_once(measured))
    totals = [_total(look) for look in looks.values()]
    memory = _sound(use.memory for look in looks.values() for name, use in look.items() if name in names)
    return Use(
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
    """Those that an engine can have measured."""
    return [found for value in values if (found := number.finite(value)) is not None and found >= 0.0]


def _at_once(measured: Measured) -> float | None:
    last = measured.last
    seen = [sample.route for sample in measured.since(last.time - _SOON) if sample.route] if last else []
    return _average([float(sum(max(0, backend.in_flight) for backend in route.backends.values())) for route in seen])


def _average(values: list[float]) -> float | None:
    return number.ratio(sum(values), len(values)) if values else None


def guard(scaling: Scaling, use: Use, ready: int) -> Strain | None:
    """What processors or GPUs ask for, the larger of both; None: neither is known, or the document does not guard them."""
    found = [
        Strain(used / quantity.percent(allowed), rule, f"{_said(rule, used, ready)}, and {allowed} is the most they should")
        for rule, used, allowed in (("cpu", use.cpu, scaling.cpu), ("gpu", use.gpu, scaling.gpu))
        if used is not None and quantity.percent(allowed) > 0
    ]
    return max(found, key=lambda strain: strain.need, default=None)


def busy(scaling: Scaling, use: Use, ready: int) -> Strain | None:
    """What keeps servers that say nothing of themselves as busy as they should be; None: nothing is known of them.

    They are as busy as their processors, their GPUs, or their requests at once, whichever is the most.
    """
    should = quantity.percent(scaling.utilisation) or 0.01
    found = [(used, rule, _said(rule, used, ready)) for rule, used in (("cpu", use.cpu), ("gpu", use.gpu)) if used is not None]
    if use.at_once is not None:
        said = f"{use.at_once:.3g} requests at once, and a replica can have {scaling.concurrency}"
        found.append((use.at_once / scaling.concurrency, "requests", said))
    wished = [Strain(used / should, rule, f"{said}; it should be busy {should:.0%}") for used, rule, said in found]
    return max(wished, key=lambda strain: strain.need, default=None)


def _said(rule: str, used: float, ready: int) -> str:
    return f"replicas use {used / max(1, ready):.0%} of their {_NAMES[rule]}"


def short_of_memory(scaling: Scaling, use: Use) -> str:
    """The sentence that keeps replicas; empty when memory is not short."""
    allowed = quantity.percent(scaling.memory)
    if not allowed or use.memory is None or use.memory < allowed:
        return ""
    return f"replicas use {use.memory:.0%} of their memory, and from {scaling.memory} on none goes"
