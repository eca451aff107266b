"""The page of a load test."""

from __future__ import annotations

from fairway.simulation.report import axis
from fairway.simulation.report.chart import ChartLine, LineChart
from fairway.simulation.report.chart_page import ChartPage
from fairway.simulation.report.table import columns_of
from fairway.views.serving.bench import BenchView


def bench_page(view: BenchView) -> ChartPage:
    """Return a page with throughput by number of connections, and latency by throughput."""
    answered = [point for point in view.points if point.answered]
    rows = [
        [
            *(str(point.connections), f"{point.rate:,.0f}"),
            *(f"{value:.2f}" for value in (point.p50_ms, point.p90_ms, point.p95_ms, point.p99_ms)),
            str(point.failed),
        ]
        for point in view.points
    ]
    titles = ["CONNECTIONS", "ANSWERS/S", "P50 MS", "P90 MS", "P95 MS", "P99 MS", "FAILED"]
    rates = [point.rate for point in answered] or [1.0]
    slowest = max([point.p99_ms for point in answered], default=1.0)
    knee = f"the knee is at {view.knee} connections" if view.knee else "no knee was found between measured points"
    charts = (
        LineChart(
            title="Latency over throughput",
            note="Each dot is a number of connections. The curve turns upwards at the knee: beyond it, load only adds waiting.",
            x=axis.linear(0.0, max(rates)),
            y=axis.linear(0.0, slowest),
            x_title="answers per second",
            y_title="ms",
            lines=tuple(
                ChartLine(name, [(point.rate, getattr(point, field)) for point in answered])
                for name, field in (("p50", "p50_ms"), ("p95", "p95_ms"), ("p99", "p99_ms"))
            ),
        ),
        LineChart(
            title="Throughput over connections",
            note="Successful answers per second.",
            x=axis.linear(0.0, float(max(point.connections for point in view.points))),
            y=axis.linear(0.0, max(rates)),
            x_title="connections",
            y_title="answers per second",
            lines=(ChartLine("answers per second", [(float(point.connections), point.rate) for point in answered]),),
        ),
    )
    return ChartPage(
        title=f"Load test of {view.url}",
        summary=f"{view.seconds:g} seconds per point; {knee}.",
        tables=(
            ("In numbers", "Every connection sends its next request as soon as it has the answer.", (columns_of(titles), rows)),
        ),
        charts=charts if answered else (),
    )
