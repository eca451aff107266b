"""Views of a load test."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairway.units import quantity
from fairway.views.text import phrase
from fairway.views.text.curve import plot
from fairway.views.text.table import Column, TextPage, table

WIDTH, HEIGHT = 56, 8
BUSY = 0.9
"""Fraction of a core above which the load generator itself is the limit."""


class BenchPoint(msgspec.Struct, frozen=True):
    """The measurement for one number of connections or one rate."""

    connections: int
    rate: float
    """Successful replies per second."""
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    answered: int
    failed: int
    statuses: dict[str, int] = {}
    offered: float = 0.0
    """Requests per second that were due in an open loop; 0 for a closed loop, in which each reply triggers a request."""
    client_cpu: float = 0.0
    """Fraction of a core that the load generator used; near 1 it is the limit, not the service."""


class BenchView(msgspec.Struct, frozen=True):
    """A complete load test."""

    url: str
    seconds: float
    """Duration of each point in seconds."""
    points: tuple[BenchPoint, ...]
    knee: int = 0
    """Connections above which more load increases latency more than throughput; 0 if none was found: no request succeeded, the
    knee is not between measured points, or the load was an open loop."""


def bench_text(view: BenchView, page: TextPage) -> str:
    """Return the table, the curve, and a sentence about the knee."""
    opened = any(point.offered for point in view.points)
    rows = [_row(point, view.knee) for point in view.points]
    columns = (
        Column("REQUESTS/S" if opened else "CONNECTIONS", right=True), Column("ANSWERS/S", right=True), Column("P50", right=True),
        Column("P90", right=True), Column("P95", right=True), Column("P99", right=True), Column("FAILED", right=True), Column(""),
    )  # fmt: skip
    lines = [table(columns, rows, page).rstrip("\n"), *_chart(view.points), "", _sentence(view), *_client(view.points)]
    return "\n".join(lines) + "\n"


def _row(point: BenchPoint, knee: int) -> list[str]:
    times = [_milliseconds(value) for value in (point.p50_ms, point.p90_ms, point.p95_ms, point.p99_ms)]
    return [
        f"{point.offered:,.0f}" if point.offered else str(point.connections),
        f"{point.rate:,.0f}",
        *times,
        str(point.failed),
        "<- knee" if point.connections == knee and not point.offered else "",
    ]


def _chart(points: Sequence[BenchPoint]) -> list[str]:
    """Return a chart of the 95th percentile over replies per second, with a scale at both axes."""
    answered = sorted((point for point in points if point.answered), key=lambda measured: measured.rate)
    drawn = plot([(point.rate, point.p95_ms) for point in answered], WIDTH, HEIGHT)
    if not drawn:
        return []
    low, high = min(point.p95_ms for point in answered), max(point.p95_ms for point in answered)
    middle = HEIGHT // 2
    half = high - (high - low) * middle / (HEIGHT - 1)
    marks = {0: _milliseconds(high), middle: _milliseconds(half), HEIGHT - 1: _milliseconds(low)}
    margin = max(len(mark) for mark in marks.values())
    lines = [f"{marks.get(number, ''):>{margin}} {'┤' if number in marks else '│'}{line}" for number, line in enumerate(drawn)]
    left, right = answered[0].rate, answered[-1].rate
    axis = "".join("┬" if position in (0, WIDTH // 2, WIDTH - 1) else "─" for position in range(WIDTH))
    ends = f"{left:,.0f}", f"{(left + right) / 2:,.0f}", f"{right:,.0f}"
    numbers = f"{ends[0]:<{WIDTH // 2 - len(ends[1]) // 2}}{ends[1]}"
    numbers = f"{numbers:<{WIDTH - len(ends[2])}}{ends[2]}"
    return ["", "p95", *lines, f"{'':>{margin}} └{axis}", f"{'':>{margin}}  {numbers} answers a second"]


def _client(points: Sequence[BenchPoint]) -> list[str]:
    """Return a notice if the load generator was the limit, so that the service may be faster than measured."""
    busy = [point for point in points if point.client_cpu >= BUSY]
    if not busy:
        return []
    first = busy[0]
    load = f"{first.offered:,.0f} requests a second" if first.offered else f"{first.connections} connections"
    return [
        f"from {load} on the load generator used {first.client_cpu:.0%} of its core: it was the limit;",
        "the service may do more: run `fairway bench` in several shells at once, or a load generator that uses more cores",
    ]


def _sentence(view: BenchView) -> str:
    if not any(point.answered for point in view.points):
        return "nothing was answered"
    if any(point.offered for point in view.points):
        return _kept_up(view.points)
    tried = sorted(point.connections for point in view.points)
    knee = next((point for point in view.points if point.connections == view.knee), None)
    if knee is None:
        spans = f"{tried[0]} to {tried[-1]} connections" if len(tried) > 1 else phrase.count(tried[0], "connection")
        wider = ",".join(map(str, sorted({1, max(2, tried[0] // 2), *tried, max(8, 2 * tried[-1])})))
        return f"no knee was found between measured points ({spans} tried); try --connections {wider}"
    position = tried.index(knee.connections)
    around = f"between {tried[position - 1]} and {tried[position + 1]}" if position else f"below {tried[1]}"
    return (
        f"the knee is at {knee.connections} connections ({around}, by the numbers that were tried): {knee.rate:,.0f} answers a "
        f"second, 95 of 100 within {_milliseconds(knee.p95_ms)}; beyond it more load brings more waiting than answers"
    )


def _kept_up(points: Sequence[BenchPoint]) -> str:
    """Return a sentence about the highest rate at which all requests were served in time."""
    sustained = [point for point in points if not point.failed and point.rate >= 0.95 * point.offered]
    if not sustained:
        return f"not even {min(point.offered for point in points):,.0f} requests a second were answered as fast as they came"
    best = max(sustained, key=lambda point: point.offered)
    worse = [point.offered for point in points if point.offered > best.offered]
    more = f"; at {min(worse):,.0f} not" if worse else "; no higher rate was tried"
    within = f"95 of 100 within {_milliseconds(best.p95_ms)}"
    return f"{best.offered:,.0f} requests a second were answered as fast as they came, {within}{more}"


def _milliseconds(value: float) -> str:
    return f"{value:.2f}ms" if value < 10 else quantity.show_seconds(value / 1000)
