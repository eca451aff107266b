"""Expected durations of runs."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fairway.plan.scheduling.forecast import duration_estimate
from fairway.plan.scheduling.forecast.duration_estimate import DurationEstimate, DurationHistory, estimate, record


def after(*runs: tuple[str, str, float, float]) -> DurationHistory:
    history = DurationHistory()
    for user, name, gpus, lasted in runs:
        history = record(history, user, name, gpus, lasted)
    return history


def test_nothing_known_is_said_without_confidence() -> None:
    assert estimate(DurationHistory(), "ann", "mnist", 1, None, 0.0) == DurationEstimate(900.0, 3600.0, 14400.0, 0.0, "none")
    assert estimate(DurationHistory(), "ann", "mnist", 1, None, 7200.0).median == 7200.0


def test_a_limit_alone_is_certain_and_says_little() -> None:
    assert estimate(DurationHistory(), "ann", "mnist", 1, 1000.0, 400.0) == DurationEstimate(0.0, 300.0, 600.0, 1.0, "limit")


def test_five_runs_of_the_same_name_give_their_range() -> None:
    history = after(*[("ann", "mnist", 1, lasted) for lasted in (30.0, 10.0, 50.0, 20.0, 40.0)])
    assert estimate(history, "ann", "mnist", 1, None, 0.0) == DurationEstimate(10.0, 30.0, 50.0, 0.667, "name")


def test_many_runs_give_the_middle_four_fifths() -> None:
    history = after(*[("ann", "mnist", 1, float(lasted)) for lasted in range(1, 25)])
    assert estimate(history, "ann", "mnist", 1, None, 0.0) == DurationEstimate(2.0, 12.5, 22.0, 0.8, "name")


def test_what_ran_longer_than_some_is_compared_with_the_others() -> None:
    history = after(*[("ann", "mnist", 1, float(lasted)) for lasted in range(100, 1100, 100)])
    assert estimate(history, "ann", "mnist", 1, None, 450.0) == DurationEstimate(50.0, 300.0, 550.0, 0.714, "name")


def test_the_closest_group_with_enough_witnesses_speaks() -> None:
    own = [("ann", "mnist", 1, 10.0)] * 5
    history = after(*own, *[("ann", "other", 1, 20.0)] * 5, *[("bob", "x", 1, 30.0)] * 11, *[("bob", "x", 8, 40.0)] * 22)
    found = [
        estimate(history, user, name, gpus, None, 0.0)
        for user, name, gpus in (
            ("ann", "mnist", 1),
            ("ann", "mnist", 8),
            ("ann", "new", 1),
            ("eve", "new", 1),
            ("eve", "new", 4),
        )
    ]
    assert [(one.basis, one.median) for one in found] == [
        ("name", 10.0),
        ("name", 10.0),
        ("user", 15.0),
        ("size", 30.0),
        ("all", 40.0),
    ]


def test_a_run_cannot_outlast_its_limit() -> None:
    history = after(*[("ann", "mnist", 1, float(lasted)) for lasted in (10, 20, 30, 40, 50)])
    assert estimate(history, "ann", "mnist", 1, 25.0, 0.0) == DurationEstimate(10.0, 25.0, 25.0, 0.833, "name")


def test_a_case_of_all_cases() -> None:
    history = after(*[("ann", "mnist", 1, float(lasted)) for lasted in (10, 20, 30, 40, 50)])
    cases = [duration_estimate.remaining(history, "ann", "mnist", 1, None, 0.0, part) for part in (0.0, 0.3, 0.5, 0.999)]
    assert cases == [10.0, 20.0, 30.0, 50.0]
    assert duration_estimate.remaining(history, "ann", "mnist", 1, 35.0, 0.0, 0.999) == 35.0
    assert duration_estimate.remaining(DurationHistory(), "ann", "mnist", 1, 100.0, 20.0, 0.5) == 40.0


def test_the_history_stays_small() -> None:
    history = DurationHistory()
    for number in range(600):
        history = record(history, "ann", f"job-{number}", 1, 1.0)
    assert len(history.groups) == duration_estimate.MOST_GROUPS
    assert "nann/job-599" in history.groups
    assert "nann/job-0" not in history.groups
    assert max(len(kept) for kept in history.sizes.values()) == duration_estimate.KEPT_OF_ALL
    assert max(len(kept) for kept in history.groups.values()) == duration_estimate.KEPT_OF_A_NAME
    assert history.count == 600


def test_recording_leaves_the_old_history_as_it_was() -> None:
    before = after(("ann", "mnist", 1, 10.0))
    record(before, "ann", "mnist", 1, 20.0)
    assert before == after(("ann", "mnist", 1, 10.0))


def test_a_history_can_be_kept_and_read_again() -> None:
    history = after(("ann", "mnist", 0.5, 10.04), ("", "x", 8, 20.0))
    assert msgspec.json.decode(msgspec.json.encode(history), type=DurationHistory) == history


runs = st.lists(
    st.tuples(
        st.sampled_from(["ann", ""]),
        st.sampled_from(["a", "b", ""]),
        st.sampled_from([0.0, 0.5, 1.0, 8.0]),
        st.floats(0, 1e6),
    ),
    max_size=40,
)


@given(runs, st.floats(0, 1e6), st.none() | st.floats(0, 1e6))
def test_a_range_is_in_order_and_within_the_limit(
    found: list[tuple[str, str, float, float]], elapsed: float, limit: float | None
) -> None:
    one = estimate(after(*found), "ann", "a", 1, limit, elapsed)
    assert 0.0 <= one.low <= one.median <= one.high
    assert 0.0 <= one.confidence <= 1.0
    assert limit is None or one.high <= max(0.0, limit - elapsed)


@given(st.lists(st.floats(0, 1e6), min_size=20, max_size=24))
def test_the_stated_part_of_the_witnesses_lies_in_the_range(lasted: list[float]) -> None:
    one = estimate(after(*[("ann", "a", 1, seconds) for seconds in lasted]), "ann", "a", 1, None, 0.0)
    rounded = [round(seconds, 1) for seconds in lasted if round(seconds, 1) > 0]
    within = sum(one.low <= seconds <= one.high for seconds in rounded)
    if one.basis == "name" and len(rounded) >= duration_estimate.LEAST_WITNESSES:
        assert within >= one.confidence * (len(rounded) + 1)
