"""Numbers from outside: typed and bounded, never an exception."""

from __future__ import annotations

import math

import pytest

from fairway.units.number import finite, int64


@pytest.mark.parametrize(
    ("value", "found"),
    [(0, 0), (-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1), (3.0, 3), (-0.0, 0), (2.0**53, 2**53)],
)
def test_whole_numbers_of_64_bits_are_taken(value: object, found: int) -> None:
    assert int64(value) == found
    assert type(int64(value)) is int


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 2**70, True, False, None, "3", 1.5, 2.0**54, math.nan, math.inf, [], {}, b"1", 3j]
)
def test_everything_else_is_no_int64(value: object) -> None:
    assert int64(value) is None


@pytest.mark.parametrize(("value", "found"), [(0, 0.0), (1.5, 1.5), (-(10**300), -1e300), (5e-324, 5e-324)])
def test_finite_numbers_are_taken(value: object, found: float) -> None:
    assert finite(value) == found
    assert type(finite(value)) is float


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, None, "1", [], {}, 3j])
def test_everything_else_is_not_finite(value: object) -> None:
    assert finite(value) is None
