"""Sequential tests that are valid at any time: repeated evaluation does not make a false alarm more likely.

Each test keeps a likelihood ratio of "worse" against "not worse", averaged over several effect sizes. If the revision is not
worse, the probability that the ratio ever exceeds `1 / alpha` is at most `alpha` (Ville's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairway.units import number

RATIOS = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Effect sizes: how many times more frequent an event could be."""
LOOKS = 3
"""One sample adds at most `1 / LOOKS` of the threshold, so that a single bad moment causes no rollback."""
_MOST = 0.95
_EFFECT = 0.2
"""Effect size for differences of means, in standard deviations."""
FEW = 50
"""Minimum number of reports of either side."""


def limit(alpha: float) -> float:
    """Return the threshold of a test's evidence, as a logarithm."""
    return math.log(1.0 / alpha)


def more_often_than(evidence: Mapping[float, float], count: int, total: int, usual: float, alpha: float) -> dict[float, float]:
    """Return the evidence, by ratio, after one more sample: `count` of `total`, where the rate `usual` is acceptable."""
    most = _MOST / RATIOS[0]
    usual = most if math.isnan(usual) else min(max(usual, 1e-6), most)
    count, total = _within(count, total)

    def added(ratio: float) -> float:
        part = min(_MOST, ratio * usual)
        return count * math.log(part / usual) + (total - count) * math.log((1.0 - part) / (1.0 - usual))

    return _with(evidence, added, alpha)


def more_often_than_beside(
    evidence: Mapping[float, float], mine: tuple[int, int], other: tuple[int, int], alpha: float
) -> dict[float, float]:
    """Return the evidence, by ratio, after one more sample of both sides: (count, total) of each.

    If both were equal, the probability that an event is mine would be my fraction of the requests. So only events count, however
    rare they are.
    """
    (count, total), (other_count, other_total) = _within(*mine), _within(*other)
    if not total or not other_total:
        return _known(evidence)

    def added(ratio: float) -> float:
        # Logarithms of quotients: one side may have so many more requests that its fraction rounds to 1.
        rarer = math.log((total + other_total) / (ratio * total + other_total))
        return count * (math.log(ratio) + rarer) + other_count * rarer

    return _with(evidence, added, alpha)


def _within(count: int, total: int) -> tuple[int, int]:
    """Return count and total, corrected where counters are inconsistent."""
    total = max(0, total)
    return min(max(0, count), total), total


def _known(evidence: Mapping[float, float]) -> dict[float, float]:
    """Return the evidence by ratio; missing or non-finite values count as zero."""
    return {ratio: number.finite(evidence.get(ratio)) or 0.0 for ratio in RATIOS}


def _with(evidence: Mapping[float, float], added: Callable[[float], float], alpha: float) -> dict[float, float]:
    most = limit(alpha) / LOOKS
    return {ratio: number.finite(value + min(most, added(ratio))) or 0.0 for ratio, value in _known(evidence).items()}


def strength(evidence: Mapping[float, float]) -> float:
    """Return the evidence averaged over all ratios, as a logarithm; 0 at the start."""
    values = list(_known(evidence).values())
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values) / len(values))


@dataclass(frozen=True, slots=True)
class MetricReports:
    """Reports of one side: count, sum, and sum of squares."""

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """The average."""
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        """The variance of single reports."""
        if not self.count:
            return 0.0
        spread = self.squares / self.count - self.mean * self.mean
        # Overflow: the variance is unknown.
        return math.inf if math.isnan(spread) else max(0.0, spread)


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """New minus old, with a confidence interval that is valid at any time."""

    value: float
    low: float
    high: float


def difference(new: MetricReports, old: MetricReports, alpha: float) -> MeanDifference | None:
    """Return the difference of means by a mixture sequential probability ratio test; None: too few or too large reports."""
    sums = (new.count, new.total, new.squares, old.count, old.total, old.squares)
    if not all(map(math.isfinite, sums)) or min(new.count, old.count) < FEW:
        return None
    spread = new.variance / new.count + old.variance / old.count
    value = new.mean - old.mean
    # A lower bound of the spread for reports of this size: a metric that has never varied may still vary later.
    spread = max(spread, 1e-12 * (1.0 + value * value))
    mixed = (_EFFECT**2) * max(1e-12, (new.variance + old.variance) / 2)
    half_width = math.sqrt(spread * (spread + mixed) / mixed * (math.log((spread + mixed) / spread) + 2.0 * limit(alpha)))
    return (
        MeanDifference(value, value - half_width, value + half_width)
        if math.isfinite(value) and math.isfinite(half_width)
        else None
    )
