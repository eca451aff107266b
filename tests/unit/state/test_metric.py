"""Metrics of a run: the last value by step and time, and the best one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.spec import condition
from fairway.state.metric import MetricSummary, direction, summarise

Points = list[tuple[float, int | None, dict[str, float]]]


def summary(*points: tuple[float, int | None, float], attempt: int = 0, before: MetricSummary | None = None) -> MetricSummary:
    known = {} if before is None else {"m": before}
    return summarise(known, attempt, [(time, step, {"m": value}) for time, step, value in points])["m"]


def test_the_last_value_is_that_of_the_highest_step_not_the_one_that_came_last() -> None:
    """Keras' autologging logs step 0 again after training."""
    metric_summary = summary((1.0, 0, 0.9), (2.0, 1, 0.5), (3.0, 2, 0.3), (4.0, 0, 0.8))
    assert (metric_summary.last, metric_summary.step, metric_summary.time) == (0.3, 2, 3.0)


def test_of_one_step_the_later_value_counts() -> None:
    assert summary((1.0, 5, 0.9), (2.0, 5, 0.5)).last == 0.5
    assert summary((2.0, 5, 0.5), (1.0, 5, 0.9)).last == 0.5
    assert summary((1.0, 5, 0.9), (1.0, 5, 0.5)).last == 0.5


def test_without_steps_the_time_decides() -> None:
    assert summary((1.0, None, 0.9), (3.0, None, 0.5), (2.0, None, 0.7)).last == 0.5


def test_a_value_without_a_step_stands_where_the_run_is_by_then() -> None:
    metric_summary = summary((1.0, 5, 0.9), (2.0, None, 0.5))
    assert (metric_summary.last, metric_summary.step) == (0.5, 5)
    assert summary((2.0, 5, 0.9), (1.0, None, 0.5)).last == 0.9
    assert summary((1.0, 5, 0.9), (2.0, None, 0.5), (3.0, 4, 0.1)).last == 0.5


def test_a_run_that_started_again_goes_on_from_where_it_is() -> None:
    first = summary((1.0, 1, 0.9), (2.0, 9, 0.1))
    second = summary((3.0, 4, 0.4), attempt=1, before=first)
    assert (second.last, second.step, second.low, second.low_step) == (0.4, 4, 0.1, 9)
    assert summary((4.0, 3, 0.5), attempt=1, before=second).last == 0.4


def test_the_extremes_are_kept_with_their_steps_and_nan_is_none() -> None:
    metric_summary = summary(
        (1.0, 1, 0.5), (2.0, 2, math.nan), (3.0, 3, -2.0), (4.0, 4, math.inf), (5.0, 5, -math.inf), (6.0, 6, 7.0)
    )
    assert (metric_summary.low, metric_summary.low_step, metric_summary.high, metric_summary.high_step) == (-2.0, 3, 7.0, 6)
    only = summary((1.0, 1, math.nan))
    assert math.isnan(only.last)
    assert (only.low, only.high, only.best("min"), only.best("max")) == (None, None, None, None)
    assert (metric_summary.best("min"), metric_summary.best("max"), metric_summary.best("")) == ((-2.0, 3), (7.0, 6), None)


def test_the_first_of_equal_extremes_counts() -> None:
    metric_summary = summary((1.0, 1, 0.5), (2.0, 2, 0.5))
    assert (metric_summary.low_step, metric_summary.high_step) == (1, 1)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20), st.floats()), min_size=1, unique_by=lambda each: each[:2]),
    st.randoms(),
)
def test_the_order_of_arrival_changes_nothing(values: list[tuple[int, int, float]], chance: object) -> None:
    points = [(float(time), step, value) for step, time, value in values]
    shuffled = list(points)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = summary(*points), summary(*shuffled)
    assert repr((one.last, one.step, one.time)) == repr((other.last, other.step, other.time))
    assert (one.low, one.high) == (other.low, other.high)
    newest = max(points, key=lambda point: (point[1], point[0]))
    assert (one.step, one.time) == (newest[1], newest[0])
    finite = [value for *_, value in points if math.isfinite(value)]
    assert (one.low, one.high) == ((min(finite), max(finite)) if finite else (None, None))


def test_only_so_many_metrics_are_kept() -> None:
    found = summarise({}, 0, [(1.0, 1, {f"m{number}": 1.0 for number in range(9)})], most=4)
    assert list(found) == ["m0", "m1", "m2", "m3"]
    assert summarise(found, 0, [(2.0, 2, {"m8": 1.0, "m1": 2.0})], most=4)["m1"].last == 2.0


@pytest.mark.parametrize(
    "name",
    ["loss", "Loss", "val_loss", "train/loss", "val loss", "loss_epoch", "evalLoss", "loss1", "losses/box", "dice_loss",
     "rmse", "val_root_mean_squared_error", "mae", "error_rate", "perplexity", "ppl", "eval-logloss", "wer", "fid",
     "cross_entropy", "nll", "neg_log_likelihood"],
)  # fmt: skip
def test_less_is_better(name: str) -> None:
    assert direction(name) == "min"


@pytest.mark.parametrize(
    "name",
    ["accuracy", "val_acc", "acc@1", "acc1", "top5", "Accuracy/test", "f1", "macro_f1_score", "roc_auc", "valAUROC",
     "metrics/mAP50", "precision", "recall", "bleu", "rougeL", "mean_iou", "dice", "r2", "reward", "ndcg@10",
     "neg_mean_squared_error"],
)  # fmt: skip
def test_more_is_better(name: str) -> None:
    assert direction(name) == "max"


@pytest.mark.parametrize("name", ["lr", "learning_rate", "grad_norm", "temperature", "score", "epoch", "gloss", "accident", "",
                                  "x/y", "negative_accuracy", "error_recall"])  # fmt: skip
def test_of_other_names_nothing_is_known(name: str) -> None:
    assert direction(name) == ""


def test_the_stop_condition_says_what_is_better_where_the_name_does_not() -> None:
    wanted = condition.goals(condition.parse("score >= 0.9 and step > 5 or (0.1 > gap and not lr > 2) or loss > 3"))
    assert wanted == {"score": "max", "gap": "min", "loss": "max"}
    assert direction("score", wanted) == "max"
    assert direction("loss", wanted) == "min"
    assert condition.goals(condition.parse("a > 1 and a < 2 or a > b or c == 1")) == {}
