from __future__ import annotations

from collections import Counter
from math import gcd

from hypothesis import given
from hypothesis import strategies as st

from fairway.serving.router.routing.weighted_choice import RequestShare, WeightedTurns, stay

WEIGHTS = st.dictionaries(st.integers(1, 5), st.integers(1, 12), min_size=1, max_size=4)


@given(WEIGHTS, st.integers(0, 50))
def test_over_one_round_weights_come_out_exactly_from_wherever_it_begins(weights: dict[int, int], skipped: int) -> None:
    turns = WeightedTurns()
    divisor = gcd(*weights.values())
    for _ in range(skipped):
        turns.next(weights)
    found = Counter(turns.next(weights) for _ in range(sum(weights.values()) // divisor))
    assert found == {name: weight // divisor for name, weight in weights.items()}


def test_turns_are_spread() -> None:
    turns = WeightedTurns()
    assert [turns.next({1: 5, 2: 1, 3: 1}) for _ in range(7)] == [1, 1, 2, 1, 3, 1, 1]


def test_one_who_is_due_stays_due_however_often_weights_change() -> None:
    turns = WeightedTurns()
    found: Counter[int] = Counter()
    for number in range(2_000):
        weight = 500 + number % 2
        found[turns.next({1: 10_000 - weight, 2: weight})] += 1
    assert abs(found[2] - 100) <= 1


def test_one_who_leaves_and_comes_back() -> None:
    turns = WeightedTurns()
    for _ in range(3):
        turns.next({1: 1, 2: 1})
        assert turns.next({1: 1}) == 1
    assert Counter(turns.next({1: 1, 2: 1}) for _ in range(40)) == {1: 20, 2: 20}


def test_nobody_has_a_weight() -> None:
    turns = WeightedTurns()
    assert Counter(turns.next({1: 0, 2: 0}) for _ in range(10)) == {1: 5, 2: 5}


def test_a_share_is_exact() -> None:
    share = RequestShare()
    assert sum(share.take(2_500) for _ in range(400)) == 100
    assert all(share.take(10_000) for _ in range(10))
    assert not any(share.take(0) for _ in range(10))


USERS = [f"user-{number}".encode() for number in range(4_000)]


def test_senders_are_shared_by_weight() -> None:
    found = Counter(stay(user, {1: 7_000, 2: 2_000, 3: 1_000}) for user in USERS)
    assert 2_650 < found[1] < 2_950
    assert 680 < found[2] < 920
    assert 310 < found[3] < 490


@given(WEIGHTS, st.integers(1, 5), st.integers(1, 12))
def test_a_revision_that_grows_only_wins(weights: dict[int, int], grown: int, more: int) -> None:
    after = {**weights, grown: weights.get(grown, 0) + more}
    for user in USERS[:100]:
        assert stay(user, after) in (stay(user, weights), grown)


def test_a_step_of_a_release_moves_only_those_who_must() -> None:
    before, after = {1: 9_500, 2: 500}, {1: 5_000, 2: 5_000}
    moved = [user for user in USERS if stay(user, before) != stay(user, after)]
    assert all(stay(user, after) == 2 for user in moved)
    assert 0.42 < len(moved) / len(USERS) < 0.48


def test_a_revision_without_a_part_gets_nobody() -> None:
    assert {stay(user, {1: 0, 2: 5}) for user in USERS[:100]} == {2}
    assert stay(b"a", {1: 0}) == 1
