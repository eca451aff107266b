"""Detecting runs that hang, as data."""

from __future__ import annotations

import pytest

from fairway.plan import stall
from fairway.state.stall import RankSample, RunStall
from fairway.views.text import phrase


def looks(**cores: float) -> stall.ActivityTrace:
    """Return two hours of samples every 15 s; each rank uses this many cores, and last printed at second 100."""
    trace = stall.ActivityTrace(0.0)
    for now in range(0, 7201, 15):
        sights = [RankSample(name, use * now, 100.0) for name, use in cores.items()]
        trace = stall.look(trace, sights, float(now))
    return trace


def test_the_rank_that_does_nothing_is_named() -> None:
    verdict = stall.judge(looks(a=1.0, b=0.0), 7200.0)
    assert verdict == RunStall(100.0, ("b",), ("a",), None)
    assert phrase.stall(verdict, 820.0) == "b has used no CPU and printed nothing for 12m while a waits"


def test_a_run_that_computes_in_silence_does_not_stall() -> None:
    assert stall.judge(looks(a=1.0, b=0.5), 7200.0) is None


def test_threads_that_only_watch_are_no_work() -> None:
    verdict = stall.judge(looks(a=0.01), 7200.0)
    assert verdict is not None
    assert verdict.idle == ("a",)
    assert phrase.stall(verdict, 820.0) == "a has used no CPU and printed nothing for 12m"


def test_of_ranks_that_all_wait_the_one_that_never_runs_is_named() -> None:
    trace = stall.ActivityTrace(0.0)
    for now in range(0, 7201, 15):
        sights = [RankSample("polls", 0.001 * now, 100.0, wakeups=now), RankSample("sleeps", 0.0, 100.0, wakeups=7)]
        trace = stall.look(trace, sights, float(now))
    assert stall.judge(trace, 7200.0) == RunStall(100.0, ("sleeps",), ("polls",), None)


def test_ranks_that_all_sleep_or_all_poll_are_named_together() -> None:
    for wakeups in (0, 1):
        trace = stall.ActivityTrace(0.0)
        for now in range(0, 7201, 15):
            trace = stall.look(trace, [RankSample(name, 0.0, 100.0, wakeups=wakeups * now) for name in "ab"], float(now))
        assert stall.judge(trace, 7200.0) == RunStall(100.0, ("a", "b"), (), None)


def test_one_that_waits_while_others_print_does_not_stall() -> None:
    trace = stall.look(looks(ps=0.0, worker=1.0), [RankSample("ps", 0.0, 100.0), RankSample("worker", 7201.0, 7199.0)], 7201.0)
    assert stall.judge(trace, 7201.0) is None


def test_ten_minutes_are_needed_where_no_step_is_known_and_the_time_can_be_set() -> None:
    trace = looks(a=0.0)
    assert stall.limit(trace) == 600.0
    assert stall.judge(trace, 699.0) is None
    assert stall.judge(trace, 701.0) is not None
    assert stall.judge(trace, 104.0, after=3.0) is not None


@pytest.mark.parametrize(("seconds", "limit"), [(1.0, 60.0), (30.0, 300.0)])
def test_where_steps_are_known_ten_of_them_are_needed_and_a_minute(seconds: float, limit: float) -> None:
    trace = stall.report(looks(a=1.0), [(100.0 + seconds * step, step) for step in range(20)])
    assert stall.limit(trace) == limit
    last = 100.0 + seconds * 19
    assert stall.judge(trace, last + limit - 1) is None
    verdict = stall.judge(trace, last + limit + 1)
    assert verdict == RunStall(last, (), ("a",), seconds)
    assert "nothing was printed or reported for" in phrase.stall(verdict, last + limit)


def test_a_restart_and_busy_devices_count_as_work() -> None:
    trace = stall.look(looks(a=0.0, b=0.0), [RankSample("a", -1.0, 100.0), RankSample("b", 0.0, 100.0, computes=True)], 7300.0)
    assert stall.judge(trace, 7300.0) is None
