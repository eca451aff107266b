"""Answers requests for the router itself: the metrics page, and probes while there is no replica."""

from __future__ import annotations

import asyncio

from fairway.serving.exposition.metric_family import OPENMETRICS, TEXT, accepts_openmetrics
from fairway.serving.router.message_head import RequestHead
from fairway.serving.router.observation_port import ObservedRequest
from fairway.serving.router.observe import health_probe
from fairway.serving.router.observe.access_log import RequestLog
from fairway.serving.router.observe.metrics_page import MetricsPage
from fairway.serving.router.observe.request_span import RequestSpanTracer
from fairway.serving.router.routing.router_state import RouterState
from fairway.serving.span_tracer import SpanTracer
from fairway.state.serving.route import WHOLE, RouteObservation, RoutePlan

OWN_PAGE = b"/fairway/metrics"
"""The metrics page of every service. A model has it at `/metrics` too; that path of a command belongs to its own server."""


class ServiceObserver:
    """Implements `Observer`."""

    def __init__(self, desk: RouterState, log: RequestLog | None = None, tracer: SpanTracer | None = None) -> None:
        """Create the observer. `log` receives the lines of the access log, `tracer` the spans."""
        self._desk = desk
        self._log = log
        self._tracer = desk.tracer = RequestSpanTracer(tracer) if tracer is not None else None
        self._page = MetricsPage(desk)
        self._about = RouteObservation()
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, plan: RoutePlan) -> None:
        """Take the plan that has come into force."""
        self._about = plan.observed
        self._page.put(plan)
        if self._tracer is not None:
            self._tracer.service = plan.service
        if self._log is not None:
            self._log.share = plan.observed.access / WHOLE
            # With a share of zero, nothing is done for a request.
            self._desk.access = self._log if plan.observed.access else None

    def takes(self, request: ObservedRequest) -> bool:
        """Return whether the request is for the metrics page; if so, send it."""
        path = request.head.target.partition(b"?")[0]
        if path == OWN_PAGE or (path == health_probe.SCRAPE and self._about.model):
            self._desk.probes += 1
            self._show_page(request)
            return True
        return False

    def is_probe(self, head: RequestHead) -> bool:
        """Return whether the request is a health probe or a scrape that wakes no replica."""
        return not self._about.probes_wake and health_probe.is_probe(head, self._about)

    def stand_in(self, request: ObservedRequest) -> None:
        """Answer a probe while there is no replica."""
        if request.head.target.partition(b"?")[0] == health_probe.SCRAPE:
            self._show_page(request)
            return
        status, body = health_probe.answer(request.head.target, self._about)
        more = b"fairway-replicas: 0\r\ncache-control: no-store\r\n" + (b"" if status == 200 else b"retry-after: 1\r\n")
        request.reply(status, body, b"application/json", more)

    def sweep(self) -> None:
        """Run the periodic work; called every second."""
        self._page.sweep()

    async def close(self) -> None:
        """Write pending lines and spans."""
        if self._log is not None:
            await self._log.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)

    def _show_page(self, request: ObservedRequest) -> None:
        task = asyncio.get_running_loop().create_task(self._send_page(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_page(self, request: ObservedRequest) -> None:
        openmetrics = accepts_openmetrics(request.head.value_of(b"accept"))
        log = self._log
        lines = (log.written, log.dropped) if log is not None else (0, 0)
        text = await self._page.text(openmetrics=openmetrics, lines=lines)
        if not request.over:
            request.reply(200, text, OPENMETRICS if openmetrics else TEXT, b"cache-control: no-store\r\n")
