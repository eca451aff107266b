"""Adds the metrics of many replicas. Pure: pages are values, and nothing is fetched here.

Counters and histograms: what each replica added since it was last read is added to a total. So a total never falls when a replica
ends, is replaced, or starts anew. Gauges: the values of the replicas that answered last time, added, or the largest of them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable

from fairway.serving.exposition.family import Family, Labels, Sample

MOST_SERIES = 50_000
"""Series of all replicas together; further ones are left out."""

Series = tuple[str, Labels]
Values = dict[Series, float]

_CUMULATIVE = frozenset({"counter", "histogram", "summary"})


def is_largest(name: str) -> bool:
    """Whether a gauge of several replicas is the largest value, not the sum: they may share a GPU, and a verdict is no amount."""
    return name.startswith("nv_gpu_") or name == "fairway_batching"


class Accumulator:
    """The metrics of one service."""

    def __init__(self) -> None:
        self._heads: dict[str, Family] = {}
        self._totals: dict[str, Values] = {}
        self._last: dict[str, Values] = {}
        """What a replica said last of what only grows."""
        self._gauges: dict[str, dict[str, Values]] = {}
        self._series = 0

    def observe(self, replica: str, labels: Labels, families: Iterable[Family], *, baseline: bool = False) -> None:
        """Take the page of a replica. `labels` are put on every sample.

        `baseline`: the first page of this replica adds nothing, because it counted before these totals began.
        """
        first = replica not in self._last
        last = self._last.setdefault(replica, {})
        gauges: dict[str, Values] = {}
        for family in families:
            head = self._heads.setdefault(family.name, Family(family.name, family.kind, family.help))
            if head.kind != family.kind:
                # Another version means something else by the name. The first meaning stays.
                continue
            if family.kind in _CUMULATIVE:
                self._grow(family, labels, last, baseline=first and baseline)
            else:
                gauges[family.name] = {(name, _with(own, labels)): value for name, own, value in family.samples}
        self._gauges[replica] = gauges

    def miss(self, replica: str) -> None:
        """The replica did not answer: its gauges are not known. What it counted stays."""
        self._gauges.pop(replica, None)

    def forget(self, replica: str) -> None:
        """The replica is gone for ever. What it counted stays."""
        self._gauges.pop(replica, None)
        self._last.pop(replica, None)

    def families(self) -> list[Family]:
        """Everything together, in order of name."""
        found: list[Family] = []
        for name, head in sorted(self._heads.items()):
            values = self._totals.get(name, {}) if head.kind in _CUMULATIVE else self._gauge(name)
            if values:
                samples: list[Sample] = [(sample, labels, value) for (sample, labels), value in values.items()]
                found.append(Family(name, head.kind, head.help, samples))
        return found

    def _grow(self, family: Family, labels: Labels, last: Values, *, baseline: bool) -> None:
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
            before = last.get(series, 0.0)
            # Less than before: the process of the replica is another one, and counts from zero.
            grown = value - before if value >= before else value
            last[series] = value
            if not baseline:
                totals[series] += grown

    def _gauge(self, name: str) -> Values:
        together: Callable[[float, float], float] = max if is_largest(name) else operator.add
        found: Values = {}
        for gauges in self._gauges.values():
            for series, value in gauges.get(name, {}).items():
                found[series] = together(found[series], value) if series in found else value
        return found


def _with(own: Labels, more: Labels) -> Labels:
    """The labels of a sample and those of its replica; `le` stays the last one. A replica cannot set a label of ours."""
    names = {name for name, _ in more}
    kept = [pair for pair in own if pair[0] not in names and pair[0] != "le"]
    bound = [pair for pair in own if pair[0] == "le"]
    return (*kept, *more, *bound)


def _is_quantile(labels: Labels) -> bool:
    return any(name == "quantile" for name, _ in labels)
