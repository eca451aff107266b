"""Views of metrics: points, summaries and curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from fairway.state.metric import MetricSummary, direction, summarise
from fairway.units.notebook_card import NotebookView
from fairway.views.text import phrase


class MetricSample(Protocol):
    """Metrics that a task reported at a step."""

    @property
    def time(self) -> float:
        """Seconds since the epoch."""
        ...

    @property
    def step(self) -> int | None:
        """The step, if it was reported."""
        ...

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """Values by name; None stands for not-a-number."""
        ...

    @property
    def task(self) -> str:
        """The name of the task, such as `worker-0`."""
        ...

    @property
    def source(self) -> str:
        """The source: `report`, `tensorboard`, `log`, `auto` (detected) or `mlflow`."""
        ...


class MetricPointView(NotebookView, frozen=True):
    """A report. A value that is not a number is null in JSON."""

    time: float
    step: int | None
    metrics: dict[str, float | None]
    task: str = ""
    source: str = "report"


class MetricSummaryView(msgspec.Struct, frozen=True):
    """Summary of a metric over a run. A value that is not a number is null in JSON."""

    last: float | None
    """The last value by step, then by time."""
    last_step: int | None = None
    goal: str = ""
    """`min` if less is better, `max` if more is better, empty if unknown."""
    best: float | None = None
    """Null if the goal is unknown or no value was finite."""
    best_step: int | None = None
    min: float | None = None
    max: float | None = None


class MetricList(NotebookView, frozen=True):
    """The points of a run in order of time, and the names of their metrics."""

    names: tuple[str, ...]
    points: tuple[MetricPointView, ...]
    summary: dict[str, MetricSummaryView] = msgspec.field(default_factory=dict)
    """Summary of each metric over all points, even if fewer are listed."""


def metric_list(
    points: Iterable[MetricSample],
    only: str = "",
    summaries: Mapping[str, MetricSummary] = MappingProxyType({}),
    wanted: Mapping[str, str] = MappingProxyType({}),
) -> MetricList:
    """Return the points with all their values, or only those with the metric `only`, reduced to it.

    Metrics without a summary, as in runs of an earlier version, get one from these points.
    """
    shown = tuple(
        MetricPointView(point.time, point.step, _values(point.metrics, only), point.task, point.source)
        for point in points
        if not only or only in point.metrics
    )
    names = dict.fromkeys(name for point in shown for name in point.metrics)
    computed = summarise({}, 0, ((point.time, point.step, _known(point.metrics)) for point in shown))
    merged = {**computed, **{name: summary for name, summary in summaries.items() if name in names}}
    return MetricList(tuple(names), shown, summary_views({name: merged[name] for name in names if name in merged}, wanted))


def summary_views(summaries: Mapping[str, MetricSummary], wanted: Mapping[str, str]) -> dict[str, MetricSummaryView]:
    """Return the views of summaries; `wanted` holds the directions given by stop conditions."""
    views = {}
    for name, summary in summaries.items():
        goal = direction(name, wanted)
        best, step = summary.best(goal) or (None, None)
        views[name] = MetricSummaryView(summary.last, summary.step, goal, best, step, summary.low, summary.high)
    return views


def best_words(summary: MetricSummaryView) -> str:
    """Return `best 0.31 at step 7`, or `min 0.1, max 0.9` if the goal is unknown; empty if no value was finite."""
    if summary.best is not None:
        at_step = f" at step {summary.best_step:,}" if summary.best_step else ""
        return f"best {phrase.measure(summary.best)}{at_step}"
    if summary.goal or summary.min is None or summary.max is None:
        return ""
    return f"min {phrase.measure(summary.min)}, max {phrase.measure(summary.max)}"


def _known(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in metrics.items()}


def _values(metrics: Mapping[str, float | None], only: str) -> dict[str, float | None]:
    return {only: metrics[only]} if only else dict(metrics)


def curves(points: Iterable[MetricSample]) -> dict[str, list[tuple[float, float]]]:
    """Return for each metric the points (step or time, value) of one task, the first that reported it."""
    by_name: dict[str, list[tuple[float, float]]] = {}
    owner: dict[str, str] = {}
    for point in points:
        for name, value in point.metrics.items():
            if owner.setdefault(name, point.task) == point.task:
                x = point.time if point.step is None else float(point.step)
                by_name.setdefault(name, []).append((x, math.nan if value is None else value))
    return by_name
