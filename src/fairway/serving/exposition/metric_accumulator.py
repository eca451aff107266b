"""Merges the metrics of many replicas. Pure: pages are values, and nothing is fetched here.

For counters and histograms, the increase of each replica since its last page is added to a total, so a total never falls when a
replica ends, is replaced or restarts. For gauges, the last values of the replicas that answered are summed, or the largest is
used.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable

from fairway.serving.exposition.metric_family import Labels, MetricFamily, Sample

MOST_SERIES = 50_000
"""Maximum number of series of all replicas together; further series are dropped."""

Series = tuple[str, Labels]
Values = dict[Series, float]

_CUMULATIVE = frozenset({"counter", "histogram", "summary"})


def is_largest(name: str) -> bool:
    """Whether a gauge merges to the largest value of the replicas, not to the sum.

    Replicas may share a GPU, and a batching verdict is not an amount.
    """
    return name.startswith("nv_gpu_") or name == "fairway_batching"


class MetricAccumulator:
    """The merged metrics of one service."""

    def __init__(self) -> None:
        self._heads: dict[str, MetricFamily] = {}
        self._totals: dict[str, Values] = {}
        self._last: dict[str, Values] = {}
        """The last cumulative values of each replica."""
        self._gauges: dict[str, dict[str, Values]] = {}
        self._series = 0

    def observe(self, replica: str, labels: Labels, families: Iterable[MetricFamily], *, baseline: bool = False) -> None:
        """Merge a page of a replica, with `labels` added to every sample.

        `baseline`: the first page of this replica adds nothing, because the replica counted before these totals began.
        """
        first = replica not in self._last
        last = self._last.setdefault(replica, {})
        gauges: dict[str, Values] = {}
        for family in families:
            head = self._heads.setdefault(family.name, MetricFamily(family.name, family.kind, family.help))
            if head.kind != family.kind:
                # Another version uses the name for another kind. The first kind stays.
                continue
            if family.kind in _CUMULATIVE:
                self._grow(family, labels, last, baseline=first and baseline)
            else:
                gauges[family.name] = {(name, _with(own, labels)): value for name, own, value in family.samples}
        self._gauges[replica] = gauges

    def miss(self, replica: str) -> None:
        """Drop the gauges of a replica that did not answer; its counts stay."""
        self._gauges.pop(replica, None)

    def forget(self, replica: str) -> None:
        """Drop a replica that has ended; its counts stay."""
        self._gauges.pop(replica, None)
        self._last.pop(replica, None)

    def families(self) -> list[MetricFamily]:
        """Return all merged families, sorted by name."""
        merged: list[MetricFamily] = []
        for name, head in sorted(self._heads.items()):
            values = self._totals.get(name, {}) if head.kind in _CUMULATIVE else self._gauge(name)
            if values:
                samples: list[Sample] = [(sample, labels, value) for (sample, labels), value in values.items()]
                merged.append(MetricFamily(name, head.kind, head.help, samples))
        return merged

    def _grow(self, family: MetricFamily, labels: Labels, last: Values, *, baseline: bool) -> None:
        totals = self._totals.setdefault(family.name, {})
        for name, own, value in family.samples:
            if not math.isfinite(value) or value < 0 or name.endswith("_created") or _is_quantile(own):
                continue
            series = name, _with(own, labels)
            if series not in totals:
                if self._series >= MOST_SERIES:
                    continue
                self._series += 1
                totals[series] = 0.0
            previous = last.get(series, 0.0)
            # A value below the last one means that the replica's process was restarted and counts from zero.
            increase = value - previous if value >= previous else value
            last[series] = value
            if not baseline:
                totals[series] += increase

    def _gauge(self, name: str) -> Values:
        combine: Callable[[float, float], float] = max if is_largest(name) else operator.add
        merged: Values = {}
        for gauges in self._gauges.values():
            for series, value in gauges.get(name, {}).items():
                merged[series] = combine(merged[series], value) if series in merged else value
        return merged


def _with(own: Labels, more: Labels) -> Labels:
    """Return a sample's labels with those of its replica, which take precedence; `le` stays last."""
    names = {name for name, _ in more}
    kept = [pair for pair in own if pair[0] not in names and pair[0] != "le"]
    bound = [pair for pair in own if pair[0] == "le"]
    return (*kept, *more, *bound)


def _is_quantile(labels: Labels) -> bool:
    return any(name == "quantile" for name, _ in labels)
