from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.plan.scheduling.placement.share_price import SharePrices


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        ({500: 10}, {500: 0.5}),
        ({810: 5}, {810: 1.0}),
        ({330: 3}, {330: 1 / 3}),
        ({600: 10, 400: 10}, {600: 0.5, 400: 0.5}),
        ({810: 100, 150: 10}, {810: 1.0, 150: 0.0}),
        ({600: 100, 400: 1}, {600: 1.0, 400: 0.0}),
    ],
)
def test_known_prices(demand: dict[int, float], expected: dict[int, float]) -> None:
    prices = SharePrices(demand)
    if len(demand) == 2 and demand.get(600) == 10:
        assert prices.of(600) + prices.of(400) == pytest.approx(1.0)
    else:
        assert {size: prices.of(size) for size in demand} == pytest.approx(expected)


demands = st.dictionaries(st.integers(1, 100).map(lambda tens: tens * 10), st.integers(1, 500), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(demands)
def test_no_filling_is_worth_more_than_a_gpu_and_the_mix_is_worth_what_it_needs(demand: dict[int, float]) -> None:
    prices = SharePrices(demand)
    assert prices.remainder[1000] <= 1.0 + 1e-6
    assert (np.diff(prices.remainder) >= 0).all()
    worth = sum(count * prices.of(size) for size, count in demand.items())
    # The value of the dual: at least the requested volume, and at most one GPU per task.
    assert sum(size * count for size, count in demand.items()) / 1000 - 1e-3 * worth <= worth <= sum(demand.values()) + 1e-6
    for free, size in product((1000, 700, 530, 190), demand):
        if size <= free:
            assert 0.0 <= prices.loss(free, size) <= 1.0 + 1e-6


def test_a_size_without_a_price_is_worth_what_it_could_hold() -> None:
    prices = SharePrices({500: 10})
    assert prices.of(700) == prices.of(500) == 0.5
    assert SharePrices({}).of(300) == 0.0


def test_spoiling_a_good_filling_is_a_loss() -> None:
    prices = SharePrices({470: 750, 320: 300, 810: 1000})
    assert prices.loss(530, 320) > 0.1
    assert prices.loss(530, 470) == pytest.approx(0.0, abs=1e-6)
