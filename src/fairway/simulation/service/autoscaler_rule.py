"""Autoscaling rules of other systems, as published, on the same measurements.

`HpaRule` is the Kubernetes HorizontalPodAutoscaler v2 on CPU; `KpaRule` is Knative's on concurrency. Both with their defaults.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from fairway.plan.service import measurement as looks
from fairway.plan.service.measurement import ServiceMeasurements
from fairway.state.service import ScaleDecision, ServiceState


@dataclass(slots=True)
class HpaRule:
    """Scales by the ratio of use to target every 15 s: up by at most 100 % or 4; down to the largest value of 300 s."""

    target: float = 0.75
    sync: float = 15.0
    window: float = 300.0
    tolerance: float = 0.1
    _next: float = 0.0
    _past: list[tuple[float, int]] = field(default_factory=list)

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
        """Return the number of replicas with its reason."""
        del shares, may_shrink
        bounds, current = service.spec.replicas, max(service.spec.replicas.min, service.scale.wanted)
        names = frozenset[str]().union(*ready.values())
        use = looks.work(measured, names, self.sync).utilisation
        if now < self._next or use is None or not names:
            return replace(service.scale, wanted=current, rule="hpa")
        self._next = now + self.sync
        ratio = use / self.target
        desired = current if abs(ratio - 1.0) <= self.tolerance else math.ceil(len(names) * ratio - 1e-6)
        desired = min(bounds.max, max(bounds.min, desired))
        self._past = [*((time, number) for time, number in self._past if time > now - self.window), (now, desired)]
        if desired > current:
            number = min(desired, max(2 * current, current + 4))
        else:
            number = min(current, max(number for _, number in self._past))
        return replace(service.scale, wanted=number, rule="hpa", changed=now if number != current else service.scale.changed)


@dataclass(slots=True)
class KpaRule:
    """Scales by an average over 60 s, and over 6 s in a panic, every 2 s; the target is 70 % of a replica's capacity.

    The metric is concurrency, of which a replica can do 1, or requests per second, of which it can do `rate`.
    """

    target: float = 0.7
    rate: float | None = None
    """Requests per second that a replica can do; None: the metric is concurrency."""
    stable: float = 60.0
    panic: float = 6.0
    threshold: float = 2.0
    _seen: list[tuple[float, float]] = field(default_factory=list)
    _panic_until: float = 0.0
    _most: int = 0

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
        """Return the number of replicas with its reason."""
        del shares, may_shrink
        bounds, current = service.spec.replicas, max(service.spec.replicas.min, service.scale.wanted)
        names = frozenset[str]().union(*ready.values())
        self._seen = [
            *((time, value) for time, value in self._seen if time > now - self.stable),
            (now, self._use(measured, names)),
        ]
        ready_count = max(1, len(names))
        stable, panic = (self._wished(now, window, ready_count) for window in (self.stable, self.panic))
        if panic / ready_count >= self.threshold:
            if now >= self._panic_until:
                self._most = 0
            self._panic_until = now + self.stable
        if now < self._panic_until:
            self._most = max(self._most, stable, panic)
            number = self._most
        else:
            number = stable
        number = min(bounds.max, max(bounds.min, number))
        return replace(service.scale, wanted=number, rule="kpa", changed=now if number != current else service.scale.changed)

    def _use(self, measured: ServiceMeasurements, names: frozenset[str]) -> float:
        """Return the current use, in fully used replicas."""
        if self.rate is not None:
            return (looks.arrival_rate(measured, 2.0) or 0.0) / self.rate
        return (looks.work(measured, names, 2.0).utilisation or 0.0) * len(names) + looks.backlog(measured)

    def _wished(self, now: float, window: float, there: int) -> int:
        values = [value for time, value in self._seen if time > now - window]
        desired = math.ceil(sum(values) / len(values) / self.target - 1e-6)
        return min(1000 * there, max(there // 2, desired))
