"""Counts the requests that come through a gateway from what the replicas report, in place of a router. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairway.state.serving.load import BackendLoad, ReplicaLoad, RevisionLoad, RouteLoad
from fairway.state.serving.route import RoutePlan


@dataclass(slots=True)
class GatewayLoadCounter:
    """Counters of one service that never decrease, though replicas come and go."""

    epoch: str
    _last: dict[str, ReplicaLoad] = field(default_factory=dict)
    _answered: dict[int, int] = field(default_factory=dict)
    _failed: dict[int, int] = field(default_factory=dict)
    _refused: dict[int, int] = field(default_factory=dict)
    _client_errors: dict[int, int] = field(default_factory=dict)

    def add(self, plan: RoutePlan, loads: Mapping[str, ReplicaLoad], now: float) -> RouteLoad:
        """Add what is new in the loads, which are given by name of the replica."""
        for backend in plan.backends:
            load = loads.get(backend.name)
            if load is None:
                continue
            before = self._last.get(backend.name, ReplicaLoad(0.0))
            if before.served > load.served:
                before = ReplicaLoad(0.0)
            number = backend.revision
            self._answered[number] = self._answered.get(number, 0) + load.served - before.served
            self._failed[number] = self._failed.get(number, 0) + max(0, load.failed - before.failed)
            self._refused[number] = self._refused.get(number, 0) + max(0, load.refused - before.refused)
            client_errors = max(0, load.client_errors - before.client_errors)
            self._client_errors[number] = self._client_errors.get(number, 0) + client_errors
            self._last[backend.name] = load
        revisions = {number: self._revision(number) for number in sorted(self._answered)}
        arrived = sum(revision_load.arrived for revision_load in revisions.values())
        backends = {
            name: BackendLoad(load.in_flight, load.served, load.failed, busy_seconds=load.busy_seconds)
            for name, load in loads.items()
        }
        return RouteLoad(now, self.epoch, arrived=arrived, revisions=revisions, backends=backends)

    def _revision(self, number: int) -> RevisionLoad:
        answered, failed, refused = self._answered[number], self._failed[number], self._refused[number]
        arrived, client_errors = answered + failed + refused, self._client_errors[number]
        return RevisionLoad(arrived, answered, client_errors, failed=failed, rejected=refused)
