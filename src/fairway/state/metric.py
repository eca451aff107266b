"""A metric over a run: its last value, by step and then by time, and its extremes; and which of them is the best one."""

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
"""Directions: less is better, more is better. Where neither is known, the direction is empty."""
MOST_METRICS = 4096
"""Names of metrics that a run may have; further ones are left out of its progress."""

LESS_IS_BETTER = frozenset(
    {"loss", "losses", "error", "errors", "err", "mse", "rmse", "mae", "mape", "smape", "msle", "rmsle", "nll",
     "perplexity", "ppl", "logloss", "crossentropy", "wer", "cer", "ter", "mer", "bpc", "bpb", "bpd", "fid", "kid",
     "brier", "ece", "regret"}
)  # fmt: skip
"""Words of names; `docs/metrics.md` lists them."""
MORE_IS_BETTER = frozenset(
    {"acc", "accuracy", "top1", "top5", "f1", "f2", "fbeta", "auc", "auroc", "auprc", "roc", "ap", "map", "precision",
     "recall", "sensitivity", "specificity", "bleu", "rouge", "rougel", "meteor", "chrf", "cider", "iou", "miou",
     "dice", "jaccard", "r2", "mcc", "kappa", "reward", "ndcg", "mrr", "psnr", "ssim", "likelihood", "exactmatch"}
)  # fmt: skip
_NO_OTHERS: Mapping[str, str] = MappingProxyType({})


class Summary(NamedTuple):
    """One metric of a run. Stored as an array: add fields at the end, with defaults."""

    last: float
    time: float
    step: int | None = None
    attempt: int = 0
    """The attempt of the run that reported the last value: a run that starts again may go back in its steps."""
    low: float | None = None
    """The least value; None: none was finite."""
    low_step: int | None = None
    high: float | None = None
    high_step: int | None = None

    def best(self, direction: str) -> tuple[float, int | None] | None:
        """The best value with its step; None where the direction is not known, or no value was finite."""
        if direction == MIN and self.low is not None:
            return self.low, self.low_step
        if direction == MAX and self.high is not None:
            return self.high, self.high_step
        return None


def summarise(
    known: Mapping[str, Summary],
    attempt: int,
    points: Iterable[tuple[float, int | None, Mapping[str, float]]],
    most: int = MOST_METRICS,
) -> dict[str, Summary]:
    """The summaries after more points, given as (time, step, values), in any order. What cannot be stored changes nothing."""
    found = dict(known)
    for time, step, values in points:
        moment, place = number.finite(time), number.int64(step)
        if moment is None or (place is None and step is not None):
            continue
        for name, given in values.items():
            value = number.real(given)
            if value is not None and (name in found or len(found) < most):
                found[name] = _later(found.get(name), Summary(value, moment, place, attempt))
    return found


def direction(name: str, wanted: Mapping[str, str] = _NO_OTHERS) -> str:
    """Whether less or more is better, by the words of a metric's name; where none of them is known, by `wanted`; else empty."""
    found = _by_words(name)
    return wanted.get(name, "") if found is None else found


@lru_cache(maxsize=4096)
def _by_words(name: str) -> str | None:
    """The direction that the words of a name say; empty where they contradict each other, None where none of them is known.

    `loss` decides against other words: `dice_loss` is a loss. `neg_` turns the direction round, as in scikit-learn's names.
    """
    words = [word.lower() for word in re.findall(r"[a-z]+[0-9]*|[A-Z]+(?![a-z])[0-9]*|[A-Z][a-z]*[0-9]*", _joined(name))]
    words += [one + two for one, two in pairwise(words)]
    stems = {stem for word in words for stem in (word, word.rstrip("0123456789"))}
    less, more = bool(stems & LESS_IS_BETTER), bool(stems & MORE_IS_BETTER)
    if not (less or more):
        return None
    if "negative" in stems or (less and more and not stems & {"loss", "losses"}):
        return ""
    return MIN if less is ("neg" not in stems) else MAX


def best_values(summaries: Mapping[str, Summary], wanted: Mapping[str, str] = _NO_OTHERS) -> dict[str, float]:
    """The best value of each metric whose direction is known."""
    found = ((name, summary.best(direction(name, wanted))) for name, summary in summaries.items())
    return {name: best[0] for name, best in found if best is not None}


def _joined(name: str) -> str:
    """The name with words like `mAP50` and `rougeL` in one piece."""
    return name.replace("mAP", "map").replace("rougeL", "rougel")


def _later(before: Summary | None, new: Summary) -> Summary:
    """Both values as one summary."""
    if before is None:
        return _with_extremes(new, new)
    step = new.step
    if new.attempt == before.attempt:
        step = before.step if new.step is None else new.step
        places = (0, 0) if new.step is None or before.step is None else (before.step, new.step)
        if (places[1], new.time) < (places[0], before.time):
            return _with_extremes(before, new)
    elif new.attempt < before.attempt:
        return _with_extremes(before, new)
    return _with_extremes(before._replace(last=new.last, time=new.time, step=step, attempt=new.attempt), new)


def _with_extremes(summary: Summary, new: Summary) -> Summary:
    if not math.isfinite(new.last):
        return summary
    if summary.low is None or new.last < summary.low:
        summary = summary._replace(low=new.last, low_step=new.step)
    if summary.high is None or new.last > summary.high:
        summary = summary._replace(high=new.last, high_step=new.step)
    return summary
