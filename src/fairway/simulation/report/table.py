"""Results of simulations as tables: one row per policy, for comparison."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.simulation.placement.placement_result import ChurnResult, PlacementResult
from fairway.simulation.queue.queue_result import QueueResult
from fairway.views.text.table import Column

Table = tuple[tuple[Column, ...], list[list[str]]]

MARKS = (95, 100, 110, 120, 130)
"""Percent of requested GPUs at which the published experiment is evaluated."""
FRAGMENTED_AT = 80
"""Percent at which fragmentation is evaluated; later, most tasks cannot use the idle GPUs under any policy."""


def placement_table(results: Sequence[PlacementResult], *, wide: bool = False) -> Table:
    """Return the percent of GPUs allocated at the marks, and the speed of the decisions."""
    kinds = kinds_of(results) if wide else []
    titles = ["POLICY", *(f"@{mark}%" for mark in MARKS), "END%", f"FRAG@{FRAGMENTED_AT}%", "DECISIONS/S", "P99"]
    titles += [f"{kind.upper()} REJECTED" for kind in kinds]
    rows = []
    for result in results:
        marks = [_percent(result.curve.get(mark)) for mark in MARKS]
        fragmented = _percent(result.fragmentation.get(FRAGMENTED_AT))
        rows.append([result.policy, *marks, _percent(result.allocated), fragmented, *_pace(result), *turned(result, kinds)])
    return columns_of(titles), rows


def churn_table(results: Sequence[ChurnResult], *, wide: bool = False) -> Table:
    """Return the mean percent of GPUs allocated, and the percent of offered GPUs that were rejected."""
    kinds = kinds_of(results) if wide else []
    titles = [
        "POLICY",
        "LOAD",
        "SEED",
        "ALLOCATED%",
        "REJECTED%",
        "DECISIONS/S",
        "P99",
        *(f"{kind.upper()} REJECTED" for kind in kinds),
    ]
    rows = [
        [
            *(result.policy, f"{result.load:g}", str(result.seed), _percent(result.allocation), _percent(result.rejected_gpus)),
            *_pace(result),
            *turned(result, kinds),
        ]
        for result in results
    ]
    return columns_of(titles), rows


def queue_table(results: Sequence[QueueResult], *, wide: bool = False) -> Table:
    """Return the hours from submission to the end, the hours of waiting, and the preemptions."""
    titles = ["POLICY", "AVERAGE H", "MEDIAN H", "P99 H", "WAIT H", "UTILISATION%", "PREEMPTIONS", "PER JOB"]
    titles += ["FIRST WAIT H", "MAKESPAN H", "MOVES", "JOBS", "NODES"] if wide else []
    rows = []
    for result in results:
        times = (result.average_jct_h, result.median_jct_h, result.p99_jct_h, result.average_wait_h)
        row = [result.policy, *(f"{hours:,.2f}" for hours in times), _percent(100 * result.utilisation)]
        row += [f"{result.preemptions:,}", f"{result.preemptions_per_job:.2f}"]
        if wide:
            row += [f"{result.average_first_wait_h:,.2f}", f"{result.makespan_h:,.1f}", f"{result.moves:,}"]
            row += [f"{result.jobs:,}", f"{result.nodes}x{result.gpus_per_node}"]
        rows.append(row)
    return columns_of(titles), rows


def columns_of(titles: Sequence[str]) -> tuple[Column, ...]:
    """Return columns with these titles: the first is left-aligned, numbers are right-aligned."""
    return tuple(Column(title, right=index > 0, always=index == 0) for index, title in enumerate(titles))


def kinds_of(results: Sequence[PlacementResult] | Sequence[ChurnResult]) -> list[str]:
    """Return the kinds of tasks that arrived, in order of name."""
    return list(dict.fromkeys(kind for result in results for kind in result.kinds))


def turned(result: PlacementResult | ChurnResult, kinds: Sequence[str]) -> list[str]:
    """Return how many tasks of each kind were rejected, and how many arrived."""
    counts = [result.kinds.get(kind) for kind in kinds]
    return [f"{kind.rejected:,} of {kind.arrived:,}" if kind is not None else "-" for kind in counts]


def _pace(result: PlacementResult | ChurnResult) -> list[str]:
    return [f"{result.pace.per_second:,.0f}", f"{result.pace.p99_us:,.0f} µs"]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
