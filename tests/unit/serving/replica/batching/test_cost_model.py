"""Learning the cost of a batch."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as some

from fairway.serving.replica.batching.cost_model import BatchCostModel


def test_a_line_is_found() -> None:
    cost = BatchCostModel()
    for rows in (1, 8, 3, 64, 20):
        cost.add(rows, 0.002 + 0.0005 * rows)
    assert math.isclose(cost.per_row, 0.0005, rel_tol=1e-6)
    assert math.isclose(cost.per_batch, 0.002, rel_tol=1e-6)
    assert cost.rows_within(0.012) in (19, 20)
    assert cost.rows_within(0.0001) == 1


def test_batches_of_one_size_keep_the_ratio_that_was_known() -> None:
    cost = BatchCostModel()
    cost.add(1, 0.003)
    cost.add(10, 0.012)
    for _ in range(400):
        cost.add(10, 0.024)
    assert math.isclose(cost.seconds(10), 0.024, rel_tol=0.05)
    assert cost.seconds(1) < 0.0241


def test_full_batches_with_noise_do_not_make_a_single_row_look_slow() -> None:
    """Under load nearly all batches are full; `seconds(1)` decides whether the model runs on the loop's thread."""
    cost, chance = BatchCostModel(), random.Random(1)
    for rows in (1, 1, 1, 8, 8, 8):
        cost.add(rows, 0.0001 + 0.000016 * rows)
    for _ in range(3000):
        rows = 64 if chance.random() < 0.98 else chance.randint(60, 63)
        slow = 5.0 if chance.random() < 0.01 else 1.0
        cost.add(rows, slow * (0.0001 + 0.000016 * rows) * chance.uniform(0.9, 1.3))
        assert cost.seconds(1) < 0.001


@given(some.lists(some.tuples(some.integers(1, 1000), some.floats(1e-6, 10.0)), min_size=1, max_size=60))
def test_it_is_never_negative_and_grows_with_the_rows(batches: list[tuple[int, float]]) -> None:
    cost = BatchCostModel()
    for rows, seconds in batches:
        cost.add(rows, seconds)
        assert cost.per_row >= 0.0
        assert cost.per_batch >= 0.0
        assert cost.seconds(2 * rows) >= cost.seconds(rows)
        assert cost.rows_within(1.0) >= 1
