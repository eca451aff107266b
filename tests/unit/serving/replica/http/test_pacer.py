"""Work on large requests pauses while small requests arrive, and only then."""

from __future__ import annotations

import time

import pytest

from fairway.serving.replica.http.pacer import LargeRequestPacer, SmallRequestClock


def test_no_pause_without_small_requests() -> None:
    pace = LargeRequestPacer(SmallRequestClock())
    assert pace.alone()
    assert [pace.pause_after(0.01) for _ in range(5)] == [0.0] * 5


def test_with_small_requests_work_takes_a_quarter_of_the_time() -> None:
    small = SmallRequestClock()
    pace = LargeRequestPacer(small)
    worked = paused = 0.0
    for _ in range(100):
        small.seen(time.perf_counter())
        worked += 0.0007
        paused += pace.pause_after(0.0007)
    assert not pace.alone()
    assert worked / (worked + paused) == pytest.approx(0.25, rel=0.05)


def test_a_small_request_of_some_time_ago_does_not_count() -> None:
    small = SmallRequestClock()
    small.seen(time.perf_counter() - 1.0)
    assert LargeRequestPacer(small).pause_after(1.0) == 0.0
