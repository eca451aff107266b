"""Tests that may be read at any time: looking again and again does not make a false alarm more likely.

Each keeps a likelihood ratio of "worse" against "not worse", averaged over how much worse it could be. Were it not worse, the
ratio would pass `1 / alpha` at any time with a chance of at most `alpha` (Ville's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairway.units import number

RATIOS = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""How many times more often something could happen."""
LOOKS = 3
"""One look adds at most this part of what is needed: a single bad moment sends nothing back."""
_MOST = 0.95
_EFFECT = 0.2
"""Differences of means that are looked for, in standard deviations."""
FEW = 50
"""Fewer reports than this of either side say nothing."""


def limit(alpha: float) -> float:
    """The evidence at which a test speaks, as a logarithm."""
    return math.log(1.0 / alpha)


def more_often_than(evidence: Mapping[float, float], count: int, total: int, usual: float, alpha: float) -> dict[float, float]:
    """The evidence, by ratio, after one look more: `count` of `total`, where `usual` is the part that is no alarm."""
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
    """The evidence, by ratio, after one look at both sides: (count, total) of each.

    Were both alike, each event would be mine by the part of the requests that are: events alone tell, however rare they are.
    """
    (count, total), (other_count, other_total) = _within(*mine), _within(*other)
    if not total or not other_total:
        return _known(evidence)

    def added(ratio: float) -> float:
        # By logarithms of quotients: one side may have so many more that its part cannot be told from 1.
        rarer = math.log((total + other_total) / (ratio * total + other_total))
        return count * (math.log(ratio) + rarer) + other_count * rarer

    return _with(evidence, added, alpha)


def _within(count: int, total: int) -> tuple[int, int]:
    """So many of so many, where counters may have been wrong."""
    total = max(0, total)
    return min(max(0, count), total), total


def _known(evidence: Mapping[float, float]) -> dict[float, float]:
    """The evidence that can be added to; what is not finite counts as none."""
    return {ratio: number.finite(evidence.get(ratio)) or 0.0 for ratio in RATIOS}


def _with(evidence: Mapping[float, float], added: Callable[[float], float], alpha: float) -> dict[float, float]:
    most = limit(alpha) / LOOKS
    return {ratio: number.finite(known + min(most, added(ratio))) or 0.0 for ratio, known in _known(evidence).items()}


def strength(evidence: Mapping[float, float]) -> float:
    """The evidence over all ratios, as a logarithm; 0 at the start."""
    values = list(_known(evidence).values())
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values) / len(values))


@dataclass(frozen=True, slots=True)
class Reports:
    """What was reported of one side: how often, the sum, and the sum of squares."""

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """The average."""
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        """How far single reports lie apart."""
        if not self.count:
            return 0.0
        spread = self.squares / self.count - self.mean * self.mean
        # What is too large to be told may be anything.
        return math.inf if math.isnan(spread) else max(0.0, spread)


@dataclass(frozen=True, slots=True)
class Difference:
    """New minus old, and the interval in which it lies, whenever one looks."""

    value: float
    low: float
    high: float


def difference(new: Reports, old: Reports, alpha: float) -> Difference | None:
    """The difference of both means by a mixture sequential probability ratio test; None: too few reports, or too large ones."""
    sums = (new.count, new.total, new.squares, old.count, old.total, old.squares)
    if not all(map(math.isfinite, sums)) or min(new.count, old.count) < FEW:
        return None
    spread = new.variance / new.count + old.variance / old.count
    value = new.mean - old.mean
    # The smallest spread that reports of this size could have: a metric that never varied is not certain for ever.
    spread = max(spread, 1e-12 * (1.0 + value * value))
    mixed = (_EFFECT**2) * max(1e-12, (new.variance + old.variance) / 2)
    wide = math.sqrt(spread * (spread + mixed) / mixed * (math.log((spread + mixed) / spread) + 2.0 * limit(alpha)))
    return Difference(value, value - wide, value + wide) if math.isfinite(value) and math.isfinite(wide) else None
