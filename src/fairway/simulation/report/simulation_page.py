"""Pages of the simulations: the charts for each kind of result."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.simulation.placement.churn_experiment import WARM_UP
from fairway.simulation.placement.placement_result import ChurnResult, PlacementResult
from fairway.simulation.queue.queue_result import QueueResult, usage_curve
from fairway.simulation.report import axis, table
from fairway.simulation.report.chart import ChartLine, LineChart
from fairway.simulation.report.chart_page import ChartPage, side_by_side

CLOSE_FROM = 85
"""Percent of requested GPUs from which policies differ."""
QUANTILES = 200
"""Number of points of a distribution."""
SPANS = 120
"""Number of equal spans over which use is averaged; shorter ones would be noise in a chart."""
PERCENT = axis.linear(0.0, 100.0, " %")


def placement_page(results: Sequence[PlacementResult], facts: dict[str, str]) -> ChartPage:
    """Return the page of a cluster that was filled."""
    names = [result.policy for result in results]
    return ChartPage(
        title=f"Placement: {side_by_side(names)}",
        summary="Tasks arrive one by one and stay. A task that does not fit is rejected; the later rejections begin, the better.",
        facts={**facts, "nodes": f"{results[0].nodes:,}", "GPUs": f"{results[0].gpus:,}", "mix": results[0].mix},
        tables=(
            (
                "In numbers",
                "Percent of GPUs allocated when this percent of GPUs has been requested.",
                table.placement_table(results),
            ),
            (
                "Rejected",
                "By the resources that a task requests: how many of the arrived tasks were rejected.",
                _turned_away(results),
            ),
        ),
        charts=(
            _arrivals("GPUs allocated", "At first every task fits; the curve bends where tasks no longer fit.", results, 0),
            _arrivals("GPUs allocated at high load", "The same curves where the policies begin to differ.", results, CLOSE_FROM),
            LineChart(
                title="Fragmentation",
                note="The share of the idle GPUs that a typical task could not use.",
                x=_arrived_axis(results, 0),
                y=PERCENT,
                x_title="GPUs requested so far, percent of all GPUs",
                y_title="idle and unusable",
                lines=tuple(ChartLine(result.policy, sorted(result.fragmentation.items())) for result in results),
            ),
        ),
    )


def _arrivals(title: str, note: str, results: Sequence[PlacementResult], since: int) -> LineChart:
    lines = [
        ChartLine(result.policy, [point for point in sorted(result.curve.items()) if point[0] >= since]) for result in results
    ]
    values = [value for line in lines for _, value in line.points] or [0.0, 100.0]
    return LineChart(
        title=title,
        note=note,
        x=_arrived_axis(results, since),
        y=axis.linear(min(values), max(values), " %") if since else PERCENT,
        x_title="GPUs requested so far, percent of all GPUs",
        y_title="allocated",
        lines=tuple(lines),
    )


def _arrived_axis(results: Sequence[PlacementResult], since: int) -> axis.ChartAxis:
    return axis.linear(since, max(max(result.curve, default=100) for result in results), " %", exact=True)


def churn_page(results: Sequence[ChurnResult], facts: dict[str, str]) -> ChartPage:
    """Return the page of a cluster with arrivals and departures."""
    series = [ChartLine(result.policy, [point for point in result.series if point[0] >= WARM_UP]) for result in results]
    values = [value for line in series for _, value in line.points] or [0.0, 100.0]
    longest = max((time for line in series for time, _ in line.points), default=WARM_UP)
    return ChartPage(
        title=f"Placement under churn: {side_by_side([result.policy for result in results])}",
        summary="Tasks arrive at random and leave after some time. A task that does not fit on arrival is rejected.",
        facts={**facts, "load": f"{results[0].load:g}", "seed": str(results[0].seed), "mix": results[0].mix},
        tables=(
            (
                "In numbers",
                "GPUs allocated on average over time, and requested GPUs that were rejected.",
                table.churn_table(results),
            ),
            (
                "Rejected",
                "By the resources that a task requests: how many of the arrived tasks were rejected.",
                _turned_away(results),
            ),
        ),
        charts=(
            LineChart(
                title="GPUs allocated over time",
                note="Time is in mean lifetimes of a task; the first two, while the cluster fills, are excluded.",
                x=axis.linear(WARM_UP, longest, exact=True),
                y=axis.linear(min(values), max(values), " %"),
                x_title="lifetimes",
                y_title="allocated",
                lines=tuple(series),
            ),
        ),
    )


def _turned_away(results: Sequence[PlacementResult] | Sequence[ChurnResult]) -> table.Table:
    kinds = table.kinds_of(results)
    columns = table.columns_of(["POLICY", *(kind.upper() for kind in kinds)])
    return columns, [[result.policy, *table.turned(result, kinds)] for result in results]


def queue_page(results: Sequence[QueueResult], facts: dict[str, str]) -> ChartPage:
    """Return the page of a replayed queue."""
    first = results[0]
    completions = [record.completion for result in results for record in result.records]
    nodes = f"{first.nodes} x {first.gpus_per_node} GPUs"
    return ChartPage(
        title=f"Queue: {side_by_side([result.policy for result in results])}",
        summary="The same jobs, submitted at the same times, by policy. A preemption costs a job two minutes on its GPUs.",
        facts={**facts, "jobs": f"{first.jobs:,}", "nodes": nodes},
        tables=(("In numbers", "Hours from submission to the end, utilisation and preemptions.", table.queue_table(results)),),
        charts=(
            LineChart(
                title="Time to completion",
                note="The share of the jobs that completed within this time after submission. Higher and further left is better.",
                x=axis.moments(min(completions), max(completions)),
                y=PERCENT,
                x_title="from submission to the end",
                y_title="jobs completed",
                lines=tuple(
                    ChartLine(outcome.policy, distribution([record.completion for record in outcome.records]))
                    for outcome in results
                ),
            ),
            LineChart(
                title="Queueing",
                note="The share of the jobs that waited no longer than this in total; at the left edge, jobs that never waited.",
                x=axis.moments(1.0, max(wait for result in results for wait in waits_of(result))),
                y=PERCENT,
                x_title="waiting time, including delays by preemptions",
                y_title="jobs",
                lines=tuple(ChartLine(outcome.policy, distribution(waits_of(outcome))) for outcome in results),
            ),
            LineChart(
                title="Utilisation",
                note="GPUs held by jobs over time.",
                x=axis.linear(0.0, max(result.makespan_h for result in results) / 24.0, exact=True),
                y=PERCENT,
                x_title="days",
                y_title="GPUs held",
                lines=tuple(
                    ChartLine(outcome.policy, [(hours / 24.0, 100.0 * part) for hours, part in usage_curve(outcome, SPANS)])
                    for outcome in results
                ),
            ),
        ),
    )


def waits_of(result: QueueResult) -> list[float]:
    """Return the seconds that each job spent in the system beyond its required run time."""
    return [max(0.0, record.completion - record.entry.duration) for record in result.records]


def distribution(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the quantiles of the values: (value, percent), both increasing, from the smallest value to 100 percent."""
    ordered = sorted(values)
    last = len(ordered) - 1
    indices = sorted({round(last * number / QUANTILES) for number in range(QUANTILES + 1)})
    return [(ordered[index], 100.0 * (index + 1) / len(ordered)) for index in indices]
