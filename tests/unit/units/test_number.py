"""Untrusted numbers: the same rules in the daemon and in the code inside tasks."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.runtime import number as inside
from fairway.units import number

NOW = 1_700_000_000.0
BOTH = pytest.mark.parametrize("rules", [number, inside], ids=["units", "runtime"])
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**80), 2**80),
    st.just(10**5000),
    st.floats(),
    st.text(max_size=100),
    st.binary(max_size=100),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
)


@BOTH
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0, 0),
        (-5, -5),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, None),
        (-(2**63) - 1, None),
        (10**400, None),
        (3.0, 3),
        (-(2.0**53), -(2**53)),
        (2.0**54, None),
        (2.5, None),
        (math.nan, None),
        (math.inf, None),
        (True, None),
        ("3", None),
        (None, None),
        ([], None),
    ],
)
def test_int64(rules: Any, value: object, found: int | None) -> None:
    assert rules.int64(value) == found
    assert rules.count(value) == (found if found is not None and found >= 0 else None)


@BOTH
@pytest.mark.parametrize(
    ("value", "found"),
    [(1, 1.0), (0.5, 0.5), (10**308, 1e308), (10**309, None), (math.inf, None), (math.nan, None), (False, None), ("1", None)],
)
def test_finite(rules: Any, value: object, found: float | None) -> None:
    assert rules.finite(value) == found


@BOTH
def test_values_of_metrics_may_be_no_numbers(rules: Any) -> None:
    assert rules.real(math.inf) == math.inf
    assert math.isnan(rules.real(math.nan))
    assert rules.real(10**400) is None
    assert rules.real(True) is None


@BOTH
@pytest.mark.parametrize(
    ("value", "fits"),
    [(NOW, True), (0, True), (NOW + 86_000, True), (NOW + 90_000, False), (-1, False), (1e308, False), (math.nan, False)],
)
def test_a_time_is_near_the_clock(rules: Any, value: float, fits: bool) -> None:
    assert (rules.moment(value, NOW) is not None) is fits


@given(ANYTHING)
def test_both_have_one_rule_and_show_every_value(value: object) -> None:
    for name in ("int64", "count", "finite"):
        assert getattr(number, name)(value) == getattr(inside, name)(value)
    assert repr(number.real(value)) == repr(inside.real(value))
    assert number.moment(value, NOW) == inside.moment(value, NOW)
    assert number.shown(value) == inside.shown(value)
    assert 0 < len(number.shown(value)) <= number.SHOWN + 1


def test_the_constants_of_both_are_the_same() -> None:
    for name in ("INT64_LEAST", "INT64_MOST", "EXACT", "AHEAD", "SHOWN"):
        assert getattr(number, name) == getattr(inside, name)


@given(ANYTHING, ANYTHING)
def test_a_ratio_is_finite_or_not_known(part: object, whole: object) -> None:
    found = number.ratio(part, whole)
    assert found is None or math.isfinite(found)


def test_ratios() -> None:
    assert number.ratio(1, 4) == 0.25
    assert number.ratio(1, 0) is None
    assert number.ratio(1e308, 1e-308) is None
    assert number.ratio(10**400, 2) is None


@given(st.floats(), st.integers(0, 1000))
def test_a_ceiling_stays_within_its_bounds(value: float, most: int) -> None:
    found = number.ceiling(value, most)
    assert 0 <= found <= most
    if 0 <= value <= most:
        assert value <= found <= value + 1
