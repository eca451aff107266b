"""Filters and sort orders of searches."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.api.mlflow.filter import ordered, read_filter
from fairway.errors import UsageError

RUN = {
    "attributes": {"status": "RUNNING", "run_id": "mnist-1", "run_name": "first try", "start_time": 1700, "end_time": None},
    "metrics": {"acc": 0.9, "val loss": 2.0, "a/b": 1.0},
    "params": {"lr": "0.1", "model": "ResNet-50"},
    "tags": {"team": "nlp", "mlflow.source.name": "train.py", "quote": "it's"},
}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "metrics.acc > 0.8",
        "metrics.acc >= 0.9 and metrics.acc <= 0.9 AND metric.acc < 1e0 and metrics.acc != 1",
        'metrics."val loss" = 2',
        "metrics.`val loss` = 2.0",
        "metrics.a/b = 1",
        "params.lr = '0.1'",
        'params.model LIKE "ResNet%"',
        "params.model ILIKE 'resnet-__'",
        "tags.mlflow.source.name = 'train.py'",
        "tag.team IN ('cv', 'nlp')",
        "tags.team NOT IN ('cv')",
        "tags.quote = 'it\\'s'",
        "status = 'RUNNING'",
        "attributes.start_time > 1000",
        "attribute.run_name = 'first try'",
        "run_uuid = 'mnist-1'",
        "attributes.end_time IS NULL",
        "tags.team IS NOT NULL",
    ],
)
def test_what_holds(text: str) -> None:
    assert all(clause.holds(RUN) for clause in read_filter(text))


@pytest.mark.parametrize(
    "text",
    [
        "metrics.acc > 0.9",
        "metrics.missing < 1",
        "metrics.missing != 1",
        "params.lr > 0",
        "params.lr = '0.10'",
        "tags.team NOT IN ('nlp')",
        "params.model LIKE 'resnet%'",
        "attributes.end_time > 0",
        "status = 'RUNNING' and params.lr = '1'",
        "tags.team IS NULL",
    ],
)
def test_what_does_not(text: str) -> None:
    assert not all(clause.holds(RUN) for clause in read_filter(text))


@pytest.mark.parametrize(
    "text",
    ["metrics.acc", "metrics.acc >", "> 1", "acc = 1 or acc = 2", "metrics.acc ~ 1", "x.y = 1", "a = 'b", "a = 'b' and",
     "a IN 'b'", "a IN ('b'", "a IS 1", "metrics. = 1", "a = b", "x" * 20_000],
)  # fmt: skip
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(UsageError):
        read_filter(text)


@given(st.text(alphabet="abm.\"'`<>=!() ,0-1ANDINLKE%\\", max_size=30))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        clauses = read_filter(text)
    except UsageError:
        return
    for clause in clauses:
        clause.holds(RUN)


def test_orders_are_kept_and_what_is_missing_comes_last() -> None:
    things = [{"a": 2, "b": "x"}, {"b": "y"}, {"a": 1, "b": "y"}, {"a": 2, "b": "a"}]

    def values(thing: dict[str, Any]) -> Any:
        return {"metrics": thing, "params": {}}

    assert ordered(things, ["metrics.a DESC", "metrics.b"], values) == [things[3], things[0], things[2], things[1]]
    assert ordered(things, ["metrics.a"], values) == [things[2], things[0], things[3], things[1]]
    assert ordered(things, [], values) == things
    for wrong in ("metrics.a UP", "metrics.a ASC DESC", "1"):
        with pytest.raises(UsageError):
            ordered(things, [wrong], values)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("operator", ["LIKE", "ILIKE"])
def test_a_pattern_of_many_parts_is_compared_at_once(operator: str) -> None:
    (clause,) = read_filter(f"tags.a {operator} '{'%a' * 40}b'")
    assert not clause.holds({"tags": {"a": "a" * 5000}})
    assert clause.holds({"tags": {"a": "a" * 5000 + "b"}})


@given(st.text("ab%_.", max_size=8), st.text("abAB.", max_size=8))
def test_a_pattern_means_what_it_means_in_sql(pattern: str, text: str) -> None:
    meant = re.compile("".join({"%": ".*", "_": "."}.get(each, re.escape(each)) for each in pattern), re.DOTALL)
    (clause,) = read_filter(f"tags.a LIKE '{pattern}'")
    assert clause.holds({"tags": {"a": text}}) == (meant.fullmatch(text) is not None)
