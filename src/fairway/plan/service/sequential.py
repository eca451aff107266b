"""Tests that may be read at any time: looking again and again does not make a false alarm more likely.

Each keeps a likelihood ratio of "worse" against "not worse", averaged over how much worse it could be. Were it not worse, the
ratio would pass `1 / alpha` at any time with a chance of at most `alpha` (Ville's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
    usual = min(max(usual, 1e-6), _MOST / RATIOS[0])

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
    (count, total), (other_count, other_total) = mine, other
    usual = total / (total + other_total)

    def added(ratio: float) -> float:
        part = ratio * total / (ratio * total + other_total)
        return count * math.log(part / usual) + other_count * math.log((1.0 - part) / (1.0 - usual))

    return _with(evidence, added, alpha) if total and other_total else dict(evidence)


def _with(evidence: Mapping[float, float], added: Callable[[float], float], alpha: float) -> dict[float, float]:
    most = limit(alpha) / LOOKS
    return {ratio: evidence.get(ratio, 0.0) + min(most, added(ratio)) for ratio in RATIOS}


def strength(evidence: Mapping[float, float]) -> float:
    """The evidence over all ratios, as a logarithm; 0 at the start."""
    values = [evidence.get(ratio, 0.0) for ratio in RATIOS]
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
        return max(0.0, self.squares / self.count - self.mean**2) if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """New minus old, and the interval in which it lies, whenever one looks."""

    value: float
    low: float
    high: float


def difference(new: Reports, old: Reports, alpha: float) -> Difference | None:
    """The difference of both means by a mixture sequential probability ratio test; None: too few reports."""
    if min(new.count, old.count) < FEW:
        return None
    spread = new.variance / new.count + old.variance / old.count
    value = new.mean - old.mean
    # The smallest spread that reports of this size could have: a metric that never varied is not certain for ever.
    spread = max(spread, 1e-12 * (1.0 + value * value))
    mixed = (_EFFECT**2) * max(1e-12, (new.variance + old.variance) / 2)
    wide = math.sqrt(spread * (spread + mixed) / mixed * (math.log((spread + mixed) / spread) + 2.0 * limit(alpha)))
    return Difference(value, value - wide, value + wide)
