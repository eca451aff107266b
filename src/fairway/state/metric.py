"""Summaries of metrics over a run: the last value by step and then by time, the extremes, and which of these is the best."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from fairway.units import number

MIN, MAX = "min", "max"
"""Directions: lower is better, higher is better. An unknown direction is empty."""
MOST_METRICS = 4096
"""Maximum number of metrics per run; further ones are left out of its progress."""

LESS_IS_BETTER = frozenset(
    {"loss", "losses", "error", "errors", "err", "mse", "rmse", "mae", "mape", "smape", "msle", "rmsle", "nll",
     "perplexity", "ppl", "logloss", "crossentropy", "wer", "cer", "ter", "mer", "bpc", "bpb", "bpd", "fid", "kid",
     "brier", "ece", "regret"}
)  # fmt: skip
"""Words in metric names; `docs/metrics.md` lists them."""
MORE_IS_BETTER = frozenset(
    {"acc", "accuracy", "top1", "top5", "f1", "f2", "fbeta", "auc", "auroc", "auprc", "roc", "ap", "map", "precision",
     "recall", "sensitivity", "specificity", "bleu", "rouge", "rougel", "meteor", "chrf", "cider", "iou", "miou",
     "dice", "jaccard", "r2", "mcc", "kappa", "reward", "ndcg", "mrr", "psnr", "ssim", "likelihood", "exactmatch"}
)  # fmt: skip
_NO_OTHERS: Mapping[str, str] = MappingProxyType({})


class MetricSummary(NamedTuple):
    """Summary of one metric of a run. Stored as an array: add fields at the end, with defaults."""

    last: float
    time: float
    step: int | None = None
    attempt: int = 0
    """The attempt that reported the last value; a restarted run may repeat earlier steps."""
    low: float | None = None
    """The smallest value; None: no value was finite."""
    low_step: int | None = None
    high: float | None = None
    high_step: int | None = None

    def best(self, direction: str) -> tuple[float, int | None] | None:
        """Return the best value with its step; None if the direction is not known, or no value was finite."""
        if direction == MIN and self.low is not None:
            return self.low, self.low_step
        if direction == MAX and self.high is not None:
            return self.high, self.high_step
        return None


def summarise(
    known: Mapping[str, MetricSummary],
    attempt: int,
    points: Iterable[tuple[float, int | None, Mapping[str, float]]],
    most: int = MOST_METRICS,
) -> dict[str, MetricSummary]:
    """Return the summaries after more points, given as (time, step, values) in any order. Invalid values are ignored."""
    summaries = dict(known)
    for time, step, values in points:
        moment, step_number = number.finite(time), number.int64(step)
        if moment is None or (step_number is None and step is not None):
            continue
        for name, raw in values.items():
            value = number.real(raw)
            if value is not None and (name in summaries or len(summaries) < most):
                summaries[name] = _later(summaries.get(name), MetricSummary(value, moment, step_number, attempt))
    return summaries


def direction(name: str, wanted: Mapping[str, str] = _NO_OTHERS) -> str:
    """Return whether lower or higher is better.

    Words in the metric's name decide. If none of them is known, `wanted` does; otherwise the direction is empty.
    """
    by_words = _by_words(name)
    return wanted.get(name, "") if by_words is None else by_words


@lru_cache(maxsize=4096)
def _by_words(name: str) -> str | None:
    """Return the direction that the words of a name imply; empty if they contradict each other, None if none is known.

    `loss` overrides other words: `dice_loss` is a loss. `neg_` reverses the direction, as in scikit-learn's names.
    """
    words = [word.lower() for word in re.findall(r"[a-z]+[0-9]*|[A-Z]+(?![a-z])[0-9]*|[A-Z][a-z]*[0-9]*", _joined(name))]
    words += [first + second for first, second in pairwise(words)]
    stems = {stem for word in words for stem in (word, word.rstrip("0123456789"))}
    less, more = bool(stems & LESS_IS_BETTER), bool(stems & MORE_IS_BETTER)
    if not (less or more):
        return None
    if "negative" in stems or (less and more and not stems & {"loss", "losses"}):
        return ""
    return MIN if less is ("neg" not in stems) else MAX


def best_values(summaries: Mapping[str, MetricSummary], wanted: Mapping[str, str] = _NO_OTHERS) -> dict[str, float]:
    """Return the best value of each metric whose direction is known."""
    best_by_name = ((name, summary.best(direction(name, wanted))) for name, summary in summaries.items())
    return {name: best[0] for name, best in best_by_name if best is not None}


def _joined(name: str) -> str:
    """Return the name with words like `mAP50` and `rougeL` made one word."""
    return name.replace("mAP", "map").replace("rougeL", "rougel")


def _later(before: MetricSummary | None, new: MetricSummary) -> MetricSummary:
    """Merge a new value into a summary."""
    if before is None:
        return _with_extremes(new, new)
    step = new.step
    if new.attempt == before.attempt:
        step = before.step if new.step is None else new.step
        steps = (0, 0) if new.step is None or before.step is None else (before.step, new.step)
        if (steps[1], new.time) < (steps[0], before.time):
            return _with_extremes(before, new)
    elif new.attempt < before.attempt:
        return _with_extremes(before, new)
    return _with_extremes(before._replace(last=new.last, time=new.time, step=step, attempt=new.attempt), new)


def _with_extremes(summary: MetricSummary, new: MetricSummary) -> MetricSummary:
    if not math.isfinite(new.last):
        return summary
    if summary.low is None or new.last < summary.low:
        summary = summary._replace(low=new.last, low_step=new.step)
    if summary.high is None or new.last > summary.high:
        summary = summary._replace(high=new.last, high_step=new.step)
    return summary
