"""Tests that may be evaluated at any time: rarely wrong when versions are equal, quick when they differ."""

import numpy as np
import pytest

from fairway.plan.service.guard import sequential_test
from fairway.plan.service.guard.sequential_test import MetricReports

ALPHA = 0.01


def spoke(evidence):
    return sequential_test.strength(evidence) >= sequential_test.limit(ALPHA)


def compared(chance, mine, other, looks, per_look=20, other_per_look=180):
    """Return the number of measurements after which the test reports a difference; None: never."""
    evidence = {}
    for look in range(looks):
        counts = (int(chance.binomial(per_look, mine)), per_look), (int(chance.binomial(other_per_look, other)), other_per_look)
        evidence = sequential_test.more_often_than_beside(evidence, *counts, ALPHA)
        if spoke(evidence):
            return look + 1
    return None


def test_nothing_seen_is_no_evidence():
    assert sequential_test.strength({}) == 0.0
    assert not spoke(sequential_test.more_often_than_beside({}, (0, 50), (0, 500), ALPHA))


@pytest.mark.parametrize("errors", [0.001, 0.01, 0.2])
def test_versions_that_are_alike_are_rarely_told_apart_however_often_one_looks(errors):
    chance = np.random.default_rng(1)
    alarms = sum(compared(chance, errors, errors, 200) is not None for _ in range(200))
    assert alarms <= 6


def test_a_version_with_more_errors_is_found_soon():
    chance = np.random.default_rng(2)
    took = [compared(chance, 0.03, 0.001, 200) for _ in range(50)]
    assert None not in took
    assert np.median(took) <= 20


def test_one_unlucky_moment_is_not_enough():
    """A single measurement in which everything failed."""
    evidence = sequential_test.more_often_than_beside({}, (20, 20), (0, 180), ALPHA)
    assert not spoke(evidence)
    evidence = sequential_test.more_often_than_beside(evidence, (20, 20), (0, 180), ALPHA)
    assert not spoke(evidence)
    assert spoke(sequential_test.more_often_than_beside(evidence, (20, 20), (0, 180), ALPHA))


def test_a_part_that_is_usual_is_no_alarm_and_one_that_is_not_is():
    chance = np.random.default_rng(3)

    def alarms(part):
        found = 0
        for _ in range(100):
            evidence = {}
            for _ in range(100):
                evidence = sequential_test.more_often_than(evidence, int(chance.binomial(20, part)), 20, 0.05, ALPHA)
                if spoke(evidence):
                    found += 1
                    break
        return found

    assert alarms(0.05) <= 4
    assert alarms(0.3) == 100


def reports(values):
    return MetricReports(len(values), float(values.sum()), float((values**2).sum()))


def worse_at_any_look(chance, new, old, count=2000):
    """Return whether the new version is called worse in an evaluation after any ten reports."""
    mine, other = (chance.random(count) < part for part in (new, old))
    for seen in range(50, count, 10):
        difference = sequential_test.difference(reports(mine[:seen].astype(float)), reports(other[:seen].astype(float)), 0.05)
        if difference.high < 0:
            return True
    return False


def test_a_metric_that_is_the_same_is_rarely_called_worse_at_any_time():
    chance = np.random.default_rng(4)
    assert sum(worse_at_any_look(chance, 0.9, 0.9) for _ in range(100)) <= 5


def test_a_metric_that_is_worse_is_called_so():
    chance = np.random.default_rng(5)
    assert all(worse_at_any_look(chance, 0.8, 0.95) for _ in range(20))


def test_few_reports_say_nothing_and_the_interval_holds_the_difference():
    assert sequential_test.difference(MetricReports(10, 5, 5), MetricReports(1000, 500, 500), 0.05) is None
    difference = sequential_test.difference(MetricReports(1000, 500, 500), MetricReports(1000, 600, 600), 0.05)
    assert difference.value == pytest.approx(-0.1)
    assert difference.low < -0.1 < difference.high < 0
    constant = sequential_test.difference(MetricReports(100, 100, 100), MetricReports(100, 100, 100), 0.05)
    assert constant.low <= 0 <= constant.high
