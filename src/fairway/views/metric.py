"""Metric points, as curves are drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from fairway.units.card import View


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


class MetricList(View, frozen=True):
    """The points of a run in order of time, and the names that occur."""

    names: tuple[str, ...]
    points: tuple[PointView, ...]


def metric_list(points: Iterable[Point], only: str = "") -> MetricList:
    """Points as they are shown: with all their values, or with one of them and without the points that lack it."""
    shown = tuple(
        PointView(point.time, point.step, _values(point.metrics, only), point.task, point.source)
        for point in points
        if not only or only in point.metrics
    )
    names = dict.fromkeys(name for point in shown for name in point.metrics)
    return MetricList(tuple(names), shown)


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
