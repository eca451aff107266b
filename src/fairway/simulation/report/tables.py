"""What simulations found as tables: a row a policy, so that they stand side by side."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.simulation.placement.outcome import ChurnResult, PlacementResult
from fairway.simulation.queue.outcome import Outcome
from fairway.views.table import Column

Table = tuple[tuple[Column, ...], list[list[str]]]

MARKS = (95, 100, 110, 120, 130)
"""Percent of GPUs asked for, at which the published experiment is read."""
FRAGMENTED_AT = 80
"""Where fragmentation is read: later on, what is idle is of no use to most whatever the policy."""


def placement_table(results: Sequence[PlacementResult], *, wide: bool = False) -> Table:
    """Percent of the GPUs that are allocated at the marks, and how fast it was decided."""
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
    """Percent of the GPUs that are allocated on average, and percent of the offered ones that were turned away."""
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


def queue_table(results: Sequence[Outcome], *, wide: bool = False) -> Table:
    """Hours from asking to the end, hours of waiting, and what interruptions there were."""
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
    """Columns with these titles: numbers at the right, the first at the left."""
    return tuple(Column(title, right=place > 0, always=place == 0) for place, title in enumerate(titles))


def kinds_of(results: Sequence[PlacementResult] | Sequence[ChurnResult]) -> list[str]:
    """The kinds of tasks that came, in order of name."""
    return list(dict.fromkeys(kind for result in results for kind in result.kinds))


def turned(result: PlacementResult | ChurnResult, kinds: Sequence[str]) -> list[str]:
    """How many of each kind were turned away, of how many."""
    found = [result.kinds.get(kind) for kind in kinds]
    return [f"{kind.rejected:,} of {kind.arrived:,}" if kind is not None else "-" for kind in found]


def _pace(result: PlacementResult | ChurnResult) -> list[str]:
    return [f"{result.pace.per_second:,.0f}", f"{result.pace.p99_us:,.0f} µs"]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
