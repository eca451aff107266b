"""A load test, as people see it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.units import quantity
from fairway.views.curve import plot
from fairway.views.table import Column, Page, table

WIDTH, HEIGHT = 56, 8


class BenchPoint(msgspec.Struct, frozen=True):
    """What one number of connections came to."""

    connections: int
    rate: float
    """Good answers a second."""
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    answered: int
    failed: int
    statuses: dict[str, int] = {}


class BenchView(msgspec.Struct, frozen=True):
    """A whole load test."""

    url: str
    seconds: float
    """A point."""
    points: tuple[BenchPoint, ...]
    knee: int = 0
    """Connections beyond which more load brings more waiting than answers; 0 when none was found: nothing was answered, or the
    most connections that were tried are still the best."""


def bench_text(view: BenchView, page: Page) -> str:
    """The table, the curve and the knee in a sentence."""
    rows = [_row(point, view.knee) for point in view.points]
    columns = (
        Column("CONNECTIONS", right=True), Column("ANSWERS/S", right=True), Column("P50", right=True), Column("P90", right=True),
        Column("P95", right=True), Column("P99", right=True), Column("FAILED", right=True), Column(""),
    )  # fmt: skip
    return "\n".join([table(columns, rows, page).rstrip("\n"), *_curve(view.points), "", _sentence(view)]) + "\n"


def _row(point: BenchPoint, knee: int) -> list[str]:
    times = [_milliseconds(value) for value in (point.p50_ms, point.p90_ms, point.p95_ms, point.p99_ms)]
    return [
        str(point.connections),
        f"{point.rate:,.0f}",
        *times,
        str(point.failed),
        "<- knee" if point.connections == knee else "",
    ]


def _curve(points: Sequence[BenchPoint]) -> list[str]:
    drawn = plot(
        [(point.rate, point.p95_ms) for point in sorted(points, key=lambda each: each.rate) if point.answered], WIDTH, HEIGHT
    )
    if not drawn:
        return []
    rates = [point.rate for point in points if point.answered]
    return ["", "p95", *(f"  {line}" for line in drawn), f"  {min(rates):,.0f} to {max(rates):,.0f} answers a second"]


def _sentence(view: BenchView) -> str:
    found = next((point for point in view.points if point.connections == view.knee), None)
    if not any(point.answered for point in view.points):
        return "nothing was answered"
    if found is None:
        most = max(point.connections for point in view.points)
        tried = "1 connection was" if most == 1 else f"at most {most} connections were"
        return f"no knee was found: {tried} tried, and more may bring more answers; try --connections 1,2,4,{max(8, 2 * most)}"
    return (
        f"the knee is at {found.connections} connections: {found.rate:,.0f} answers a second, 95 of 100 within "
        f"{_milliseconds(found.p95_ms)}; beyond it more load brings more waiting than answers"
    )


def _milliseconds(value: float) -> str:
    return f"{value:.2f}ms" if value < 10 else quantity.show_seconds(value / 1000)
