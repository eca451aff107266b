"""The metrics page of a whole service: the router's own counters, and those of all replicas together."""

from __future__ import annotations

import asyncio
import time

from fairway.serving.exposition.metric_accumulator import MetricAccumulator
from fairway.serving.exposition.metric_family import render
from fairway.serving.router.observe import replica_scrape, router_metric
from fairway.serving.router.routing.router_state import RouterState
from fairway.state.serving.route import RouteBackend, RoutePlan

FAREWELL = 120.0
"""Seconds for which a replica that left the plan is still scraped, while it finishes its requests."""


class MetricsPage:
    """Scrapes the replicas and renders the page.

    Guarantees: a replica that does not answer costs one second and its gauges, nothing else. Counters never fall. At most one
    scrape is running, however many clients request the page.
    """

    def __init__(self, desk: RouterState) -> None:
        self._desk = desk
        self._merged = MetricAccumulator()
        self._up: dict[RouteBackend, bool] = {}
        self._known: set[RouteBackend] = set()
        self._before: set[RouteBackend] = set()
        """Replicas that are older than this router: their first page adds nothing."""
        self._leaving: dict[RouteBackend, float] = {}
        self._path = ""
        self._begun = False
        self._reading: asyncio.Task[None] | None = None

    def put(self, plan: RoutePlan) -> None:
        """Follow the plan. A replica that leaves is scraped a last time."""
        served = set(plan.backends)
        self._path = plan.observed.metrics
        if not self._begun:
            self._begun, self._before = True, served
            if served:
                self.read_soon()
        removed = self._known - served
        for backend in removed:
            self._leaving.setdefault(backend, time.monotonic() + FAREWELL)
        for backend in served:
            self._leaving.pop(backend, None)
        self._known = served
        if removed:
            self.read_soon()

    def sweep(self) -> None:
        """Scrape the last counts of leaving replicas."""
        if self._leaving:
            self.read_soon()

    async def text(self, *, openmetrics: bool, lines: tuple[int, int]) -> bytes:
        """Return the current page."""
        await asyncio.shield(self.read_soon())
        up = {backend: self._up.get(backend, False) for backend in self._known} if self._path else {}
        families = [*router_metric.families(self._desk, up, lines), *self._merged.families()]
        return render(families, openmetrics=openmetrics)

    def read_soon(self) -> asyncio.Task[None]:
        """Return the running scrape, or start one."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        if not self._path:
            self._leaving.clear()
            return
        scraped = await replica_scrape.pages({*self._known, *self._leaving}, self._path)
        for backend, families in scraped.items():
            if families is None:
                self._up[backend] = False
                self._merged.miss(backend.name)
            else:
                self._up[backend] = True
                label = (("revision", str(backend.revision)),)
                self._merged.observe(backend.name, label, families, baseline=backend in self._before)
        now = time.monotonic()
        for backend, until in list(self._leaving.items()):
            if scraped.get(backend) is None or now > until:
                self._leaving.pop(backend, None)
                self._merged.forget(backend.name)
        for backend in set(self._up) - self._known - set(self._leaving):
            del self._up[backend]
