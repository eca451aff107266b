"""Metric points, as curves are drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from fairway.state.metric import Summary, direction, summarise
from fairway.units.card import View
from fairway.views import phrases


class Point(Protocol):
    """Numbers that a task reported at a step."""

    @property
    def time(self) -> float:
        """Seconds since the epoch."""
        ...

    @property
    def step(self) -> int | None:
        """The step, where it was told."""
        ...

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """Values by name; None stands for what is no number."""
        ...

    @property
    def task(self) -> str:
        """`worker-0`."""
        ...

    @property
    def source(self) -> str:
        """`report`, `tensorboard`, `log`, `auto` (detected) or `mlflow`."""
        ...


class PointView(View, frozen=True):
    """One report. A value that is no number is null on the wire."""

    time: float
    step: int | None
    metrics: dict[str, float | None]
    task: str = ""
    source: str = "report"


class SummaryView(msgspec.Struct, frozen=True):
    """One metric over a run. A value that is no number is null on the wire."""

    last: float | None
    """By step, then by time."""
    last_step: int | None = None
    goal: str = ""
    """`min` where less is better, `max` where more is; empty where that is not known."""
    best: float | None = None
    """Null where the goal is not known, or no value was finite."""
    best_step: int | None = None
    min: float | None = None
    max: float | None = None


class MetricList(View, frozen=True):
    """The points of a run in order of time, and the names that occur."""

    names: tuple[str, ...]
    points: tuple[PointView, ...]
    summary: dict[str, SummaryView] = msgspec.field(default_factory=dict)
    """The last and the best value of each name, of all points, also where fewer are listed."""


def metric_list(
    points: Iterable[Point],
    only: str = "",
    summaries: Mapping[str, Summary] = MappingProxyType({}),
    wanted: Mapping[str, str] = MappingProxyType({}),
) -> MetricList:
    """Points as they are shown: with all their values, or with one of them and without the points that lack it.

    Names without a summary, as in runs of an earlier version, get theirs from these points.
    """
    shown = tuple(
        PointView(point.time, point.step, _values(point.metrics, only), point.task, point.source)
        for point in points
        if not only or only in point.metrics
    )
    names = dict.fromkeys(name for point in shown for name in point.metrics)
    seen = summarise({}, 0, ((point.time, point.step, _known(point.metrics)) for point in shown))
    known = {**seen, **{name: summary for name, summary in summaries.items() if name in names}}
    return MetricList(tuple(names), shown, summary_views({name: known[name] for name in names if name in known}, wanted))


def summary_views(summaries: Mapping[str, Summary], wanted: Mapping[str, str]) -> dict[str, SummaryView]:
    """Summaries as they are shown; `wanted` has the directions that a stop condition says."""
    found = {}
    for name, each in summaries.items():
        goal = direction(name, wanted)
        best, step = each.best(goal) or (None, None)
        found[name] = SummaryView(each.last, each.step, goal, best, step, each.low, each.high)
    return found


def best_words(summary: SummaryView) -> str:
    """`best 0.31 at step 7`; `min 0.1, max 0.9` where it is not known what is better; empty where no value was finite."""
    if summary.best is not None:
        place = f" at step {summary.best_step:,}" if summary.best_step else ""
        return f"best {phrases.measure(summary.best)}{place}"
    if summary.goal or summary.min is None or summary.max is None:
        return ""
    return f"min {phrases.measure(summary.min)}, max {phrases.measure(summary.max)}"


def _known(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in metrics.items()}


def _values(metrics: Mapping[str, float | None], only: str) -> dict[str, float | None]:
    return {only: metrics[only]} if only else dict(metrics)


def curves(points: Iterable[Point]) -> dict[str, list[tuple[float, float]]]:
    """For each metric the points (step or time, value) of one task: the first to report it, where several do."""
    found: dict[str, list[tuple[float, float]]] = {}
    owner: dict[str, str] = {}
    for point in points:
        for name, value in point.metrics.items():
            if owner.setdefault(name, point.task) == point.task:
                place = point.time if point.step is None else float(point.step)
                found.setdefault(name, []).append((place, math.nan if value is None else value))
    return found
