"""The order of time-shared runs, and which runs they may displace."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fairway.plan.scheduling.queueing import time_slice
from fairway.plan.scheduling.queueing.time_slice import FIRST_LEVEL, LEAST_RUN, PATIENCE, STEP, TimeSliceStanding

HOUR = 3600.0


def waits(served_h: float, since: float = 0.0, submitted: float = 0.0, key: int = 1) -> TimeSliceStanding:
    return TimeSliceStanding(key, 1.0, served_h * HOUR, submitted, None, since)


def runs(served_h: float, since: float, gpus: float = 1.0, key: int = 2) -> TimeSliceStanding:
    return TimeSliceStanding(key, gpus, served_h * HOUR, 0.0, since, since)


def test_levels_end_at_2_8_32_and_128_gpu_hours() -> None:
    assert [time_slice.level(hours * HOUR) for hours in (0, 1.99, 2, 7.99, 8, 31.9, 32, 127, 128)] == [0, 0, 1, 1, 2, 2, 3, 3, 4]


def test_a_long_wait_counts_as_one_level_less_and_a_much_longer_one_as_two() -> None:
    served = 10 * HOUR  # level 2 begins at 8 GPU-hours, so a run is promoted after 16 hours of waiting, and again after 64
    assert [time_slice.level(served, hours * HOUR) for hours in (0, 15.9, 16, 63.9, 64, 1000)] == [2, 2, 1, 1, 0, 0]


def test_the_lower_level_goes_first_and_the_older_within_it() -> None:
    young, old, long = waits(1, submitted=50, key=1), waits(0, submitted=20, key=2), waits(3, submitted=0, key=3)
    assert sorted([long, young, old], key=lambda one: time_slice.order_key(one, 60.0)) == [old, young, long]


def test_equal_runs_go_by_key() -> None:
    first, second = waits(0, key=1), waits(0, key=2)
    assert time_slice.order_key(first, 0.0) < time_slice.order_key(second, 0.0)


def test_a_newcomer_takes_the_places_of_one_that_had_more_and_had_its_turn() -> None:
    assert time_slice.may_displace(waits(0), runs(3, since=0.0), now=LEAST_RUN)
    assert not time_slice.may_displace(waits(0), runs(3, since=1.0), now=LEAST_RUN)
    assert time_slice.may_displace(waits(0), runs(3, since=1.0), now=LEAST_RUN, least_run=60.0)


def test_nobody_on_the_same_level_or_below_is_displaced() -> None:
    assert not time_slice.may_displace(waits(0), runs(1.9, since=0.0), now=HOUR)
    assert not time_slice.may_displace(waits(3), runs(0, since=0.0), now=HOUR)


def test_who_waits_displaces_nobody_who_waits() -> None:
    assert not time_slice.may_displace(waits(0), waits(9, key=2), now=HOUR)


def test_one_that_waited_long_keeps_what_it_gained_while_it_runs() -> None:
    waiting = TimeSliceStanding(1, 1.0, 10 * HOUR, 0.0, None, 0.0)
    now = 20 * HOUR
    assert time_slice.level_of(waiting, now) == 1
    assert time_slice.level_of(replace(waiting, since=now), now + HOUR) == 1


def test_a_run_is_moved_only_after_a_while() -> None:
    assert not time_slice.may_move(runs(0, since=0.0), now=time_slice.LEAST_STAY - 1)
    assert time_slice.may_move(runs(0, since=0.0), now=time_slice.LEAST_STAY)
    assert not time_slice.may_move(waits(0), now=1e9)


def test_the_one_with_most_leaves_first_then_the_one_that_came_last() -> None:
    little, much, later = runs(1, 0.0, key=1), runs(9, 0.0, key=2), runs(9, 5.0, key=3)
    assert sorted([little, much, later], key=lambda one: time_slice.leaving_key(one, 1000.0)) == [later, much, little]


def test_making_room_is_dearer_the_lower_the_level_and_the_more_gpus_leave() -> None:
    one, two, low = runs(9, 0.0, key=1), runs(9, 0.0, gpus=4.0, key=2), runs(3, 0.0, key=3)
    prices = [time_slice.price(victims, 0.0) for victims in ([one], [two], [one, two], [low], [one, low])]
    assert prices == sorted(prices)


def test_the_next_look_is_the_end_of_the_turn_then_the_next_level() -> None:
    running = TimeSliceStanding(1, 8.0, 0.0, 0.0, 100.0, 100.0)
    assert time_slice.next_look(running, 100.0) == 100.0 + LEAST_RUN
    after = replace(running, served=8 * LEAST_RUN)
    assert time_slice.next_look(after, 100.0 + LEAST_RUN) == 100.0 + FIRST_LEVEL / 8


def test_the_next_look_at_one_that_waits_is_the_end_of_its_patience() -> None:
    assert time_slice.next_look(waits(0), 0.0) is None
    waiting = waits(3, since=50.0)
    patience = PATIENCE * FIRST_LEVEL
    assert time_slice.next_look(waiting, 60.0) == 50.0 + patience
    assert time_slice.next_look(waiting, 50.0 + patience) is None


standings = st.builds(
    TimeSliceStanding,
    key=st.integers(0, 10**6),
    gpus=st.sampled_from([0.25, 1.0, 2.0, 8.0, 32.0]),
    served=st.floats(0, 1e8),
    submitted=st.floats(0, 1e6),
    since=st.none() | st.floats(0, 1e6),
    waiting_since=st.floats(0, 1e6),
)


@given(st.lists(standings, unique_by=lambda one: one.key), st.floats(1e6, 1e7))
def test_the_order_is_total_and_the_same_from_any_start(found: list[TimeSliceStanding], now: float) -> None:
    def key(one: TimeSliceStanding) -> tuple[int, float, object]:
        return time_slice.order_key(one, now)

    assert len({key(one) for one in found}) == len(found)
    backwards = list(reversed(found))
    assert sorted(found, key=key) == sorted(backwards, key=key)


@given(standings, standings, st.floats(1e6, 1e7))
def test_who_was_displaced_cannot_take_the_places_back(one: TimeSliceStanding, other: TimeSliceStanding, now: float) -> None:
    waiting, running = replace(one, since=None), replace(other, since=other.since or 0.0)
    if not time_slice.may_displace(waiting, running, now):
        return
    displaced = replace(running, since=None, waiting_since=now)
    displacer = replace(waiting, since=now)
    assert not time_slice.may_displace(displaced, displacer, now)
    # Nor after its turn, as long as its level is not above the other's.
    soon = now + LEAST_RUN
    displacer = replace(displacer, served=displacer.served + displacer.gpus * LEAST_RUN)
    if time_slice.level_of(displacer, soon) <= time_slice.level_of(displaced, soon):
        assert not time_slice.may_displace(displaced, displacer, soon)


@given(standings, st.floats(1e6, 1e7))
def test_between_now_and_the_next_look_nothing_changes(one: TimeSliceStanding, now: float) -> None:
    look = time_slice.next_look(one, now)
    assert look is None or look > now
    until = look if look is not None else now + 1e6
    middle = now + 0.5 * (until - now)
    later = replace(one, served=one.served + (one.gpus * (middle - now) if one.since is not None else 0.0))
    assert time_slice.level_of(later, middle) == time_slice.level_of(one, now)
    assert time_slice.had_turn(later, middle) == time_slice.had_turn(one, now)


@given(st.lists(standings, min_size=2, max_size=12, unique_by=lambda one: one.key), st.floats(1e6, 1e7))
def test_displacing_comes_to_an_end(found: list[TimeSliceStanding], now: float) -> None:
    """There is room for one half, one place each: waiting runs displace running ones as long as any of them may."""
    half = len(found) // 2
    running = {one.key: replace(one, since=one.since or 0.0) for one in found[:half]}
    waiting = {one.key: replace(one, since=None) for one in found[half:]}
    steps = 0
    while True:
        pairs = [(a, b) for a in waiting.values() for b in running.values() if time_slice.may_displace(a, b, now)]
        if not pairs:
            break
        comes, goes = pairs[0]
        del waiting[comes.key], running[goes.key]
        running[comes.key] = replace(comes, since=now)
        waiting[goes.key] = replace(goes, since=None, waiting_since=now)
        steps += 1
    assert steps <= half


def test_a_step_is_a_step() -> None:
    assert time_slice.level(FIRST_LEVEL * STEP**5) == 6
