"""Conditions: their meaning, and invalid ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.spec import condition
from fairway.spec.condition import AllConditions, AnyCondition, ConditionError, MetricComparison, NegatedCondition


def test_tree_follows_the_usual_order_of_words():
    assert condition.parse("accuracy >= 0.98 and step > 500 or not (loss > 2)") == AnyCondition(
        (
            AllConditions((MetricComparison("accuracy", ">=", 0.98), MetricComparison("step", ">", 500.0))),
            NegatedCondition(MetricComparison("loss", ">", 2.0)),
        )
    )


@pytest.mark.parametrize(
    ("text", "metrics", "holds"),
    [
        ("accuracy >= 0.98", {"accuracy": 0.98}, True),
        ("accuracy >= 0.98", {"accuracy": 0.97}, False),
        ("accuracy >= 0.98", {}, None),
        ("0.1 > val/loss", {"val/loss": 0.05}, True),
        ("loss < -1e-3", {"loss": -1.0}, True),
        ("a == 1 and b == 2", {"a": 1, "b": 2}, True),
        ("a == 1 and b == 2", {"a": 0}, False),
        ("a == 1 and b == 2", {"a": 1}, None),
        ("a == 1 or b == 2", {"a": 1}, True),
        ("a == 1 or b == 2", {"a": 0}, None),
        ("not a == 1", {"a": 1}, False),
        ("not a == 1", {}, None),
        ("not not a != 1", {"a": 2}, True),
        ("a < b", {"a": 1, "b": 2}, True),
        ("loss < 1", {"loss": float("nan")}, None),
        ("loss != 1", {"loss": float("nan")}, None),
        ("not (loss > 1)", {"loss": float("nan")}, None),
        ("loss > 1 or step >= 5", {"loss": float("nan"), "step": 5}, True),
        ("loss > 1", {"loss": float("inf")}, True),
        ("loss < 1", {"loss": 10**400}, False),
    ],
)
def test_evaluate(text, metrics, holds):
    assert condition.parse(text).evaluate(metrics) is holds


def test_metrics_that_are_needed():
    assert condition.parse("a > 1 and (b < 2 or not c == a)").metrics == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "has nothing where a metric"),
        ("accuracy", 9, "where a comparison should be"),
        ("accuracy >=", 12, "where a metric or a number"),
        ("accuracy => 1", 10, "write >="),
        ("accuracy = 1", 10, "write =="),
        ("a > 1 && b > 2", 7, "write and"),
        ("a > 1 || b > 2", 7, "write or"),
        ("(a > 1", 7, "not closed"),
        ("a > 1)", 6, "where the condition should end"),
        ("1 > 2", 1, "compares two numbers"),
        ("0 < a < 1", 7, "where the condition should end"),
        ("a > 1; import os", 6, "is not valid"),
        ("__import__('os') > 1", 12, "is not valid"),
        ("a > 1e", 5, "`1`, which is not valid"),
        ("and > 1", 1, "where a metric"),
        ("(" * 60 + "a > 1" + ")" * 60, 52, "nested"),
        ("a > 1 and " * 200 + "a > 1", 1, "longer than"),
    ],
)
def test_mistakes_say_where_and_what(text, column, words):
    with pytest.raises(ConditionError, match=words) as caught:
        condition.parse(text)
    assert caught.value.column == column
    assert "; " in str(caught.value)


@given(st.text(max_size=60) | st.text("ab><=!().&| 109notandor", max_size=60))
def test_any_text_is_a_condition_or_refused(text):
    found = parsed(text)
    if isinstance(found, ConditionError):
        assert 1 <= found.column <= len(text) + 1
    else:
        assert found.evaluate({}) is None
        assert found.evaluate(dict.fromkeys(found.metrics, 1.0)) in (True, False)


def parsed(text):
    try:
        return condition.parse(text)
    except ConditionError as error:
        return error
