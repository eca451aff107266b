"""Rates from counters, through restarts."""

from itertools import pairwise

import pytest

from fairway.plan.service.measurement import (
    ServiceMeasurements,
    ServiceSample,
    arrival_rate,
    backlog,
    histogram,
    is_quiet,
    longer_than,
    percentile,
    quantile,
    work,
)
from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, ReplicaLoad, RevisionLoad, RouteLoad
from fairway.testing.builder.service_builder import latency_bars
from fairway.testing.builder.service_builder import service_looks as looks


def test_old_looks_are_thinned_and_then_forgotten():
    measured = looks(2000, 1.0)
    times = [sample.time for sample in measured.samples]
    assert times == sorted(times)
    assert times[-1] == 2000
    assert 1390 <= times[0] <= 1410
    assert len(times) < 160
    assert all(after - before <= 6 for before, after in pairwise(times))
    assert times[-6:] == [1990, 1992, 1994, 1996, 1998, 2000]


def test_a_look_that_is_not_newer_takes_the_place_of_what_came_after_it():
    measured = ServiceMeasurements((ServiceSample(5.0, None), ServiceSample(6.0, None)))
    assert [sample.time for sample in measured.add(ServiceSample(6.0, None)).samples] == [5.0, 6.0]


def test_the_arrival_rate_over_both_windows():
    measured = looks(100, 2.0)
    measured = looks(6, 50.0, start=102, measured=measured, epoch="b")
    assert arrival_rate(measured, 6.0) == pytest.approx(50.0)
    assert 5.0 < arrival_rate(measured, 60.0) < 8.0


def test_one_look_says_nothing_of_a_rate():
    assert arrival_rate(ServiceMeasurements(), 6.0) is None
    assert arrival_rate(looks(0, 5.0), 6.0) is None


def test_a_router_that_started_anew_counts_from_zero():
    before = RouteLoad(0.0, epoch="a", arrived=1000)
    after = RouteLoad(10.0, epoch="b", arrived=1500)
    assert arrival_rate(ServiceMeasurements((ServiceSample(0.0, before), ServiceSample(10.0, after))), 60.0) == 150.0


def test_work_as_replicas_say_it_and_as_the_router_saw_it():
    measured = looks(60, 5.0, served=10.0, busy=0.5)
    done = work(measured, frozenset({"r1-1"}), 60.0)
    assert done.rate == pytest.approx(10.0)
    assert done.utilisation == pytest.approx(0.5)
    seen = ServiceMeasurements(
        tuple(
            ServiceSample(
                time, RouteLoad(time, epoch="a", backends={"r1-1": BackendLoad(answered=count, busy_seconds=count / 4)})
            )
            for time, count in ((0.0, 0), (10.0, 20))
        )
    )
    assert work(seen, frozenset({"r1-1"}), 60.0).rate == pytest.approx(4.0)
    assert work(seen, frozenset({"r9-9"}), 60.0).rate is None


def test_backlog_is_what_waits_anywhere():
    sample = ServiceSample(1.0, RouteLoad(1.0, held=3), {"a": ReplicaLoad(1.0, queue=4), "b": ReplicaLoad(1.0, queue=5)})
    assert backlog(ServiceMeasurements((sample,))) == 12
    assert backlog(ServiceMeasurements()) == 0


def test_it_is_quiet_only_when_two_looks_say_so():
    quiet = looks(10, 0.0)
    assert is_quiet(quiet)
    assert not is_quiet(looks(0, 0.0))
    assert not is_quiet(looks(10, 5.0))
    busy = quiet.add(ServiceSample(12.0, RouteLoad(12.0, epoch="a", backends={"r1-1": BackendLoad(in_flight=1)})))
    assert not is_quiet(busy)


def test_percentiles_come_from_bars_of_the_window_and_survive_a_restart():
    def look(time, epoch, counts):
        return ServiceSample(time, RouteLoad(time, epoch=epoch, revisions={1: RevisionLoad(latency=latency_bars(counts))}))

    measured = ServiceMeasurements((look(0, "a", {0.01: 50}), look(10, "a", {0.01: 150}), look(20, "b", {1.0: 5})))
    found = histogram(measured, 1, 60.0)
    assert sum(found) == 105
    assert percentile(found, 0.5) == pytest.approx(0.01, rel=0.31)
    assert percentile(found, 0.99) == pytest.approx(1.0, rel=0.31)
    assert percentile(histogram(measured, 2, 60.0), 0.5) is None
    assert sum(histogram(measured, None, 60.0)) == 105


def test_a_routers_word_that_was_heard_before_is_no_sign_of_quiet():
    """If a router is unreachable, its last report is repeated: the counters did not stand still, they were not read."""
    word = RouteLoad(10.0, epoch="a", arrived=100)
    measured = ServiceMeasurements().add(ServiceSample(10.0, word)).add(ServiceSample(12.0, word)).add(ServiceSample(14.0, word))
    assert [sample.route is None for sample in measured.samples] == [False, True, True]
    assert not is_quiet(measured)
    assert arrival_rate(measured, 60.0) is None


def test_quantiles_lie_between_the_ends_of_their_bar():
    bars = latency_bars({0.009: 100})
    low, high = quantile(bars, 0.0), quantile(bars, 1.0)
    assert low < 0.009 <= high == percentile(bars, 0.5)
    assert quantile(bars, 0.5) == pytest.approx((low + high) / 2)
    assert quantile((), 0.5) is None
    assert quantile(latency_bars({1e9: 3}), 0.5) == LATENCY_BOUNDS[-1]


def test_answers_longer_than_a_bound_are_counted_in_proportion():
    bars = latency_bars({0.001: 10, 0.009: 100, 1.0: 7, 1e9: 1})
    assert longer_than(bars, 0.0) == 118
    assert longer_than(bars, quantile(latency_bars({0.009: 1}), 1.0)) == pytest.approx(8)
    middle = quantile(latency_bars({0.009: 1}), 0.5)
    assert longer_than(bars, middle) == pytest.approx(58)
    assert longer_than(bars, 60.0) == 1
    assert longer_than((), 1.0) == 0
