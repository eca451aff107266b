"""The policy on the recorded queues: what it must achieve without knowing any durations."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from fairway.simulation import philly_trace
from fairway.simulation.queue.forecast_assessment import assess
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.queue_replay import replay
from fairway.simulation.queue.queue_result import QueueResult
from fairway.simulation.queue.recorded_job import RecordedJob

FOLDER = Path(__file__).resolve().parents[4].parent / "shared" / "traces" / "philly"
CLUSTERS = {"ee9e8c": EqualNodes(14, 8), "b436b2": EqualNodes(12, 8)}

pytestmark = pytest.mark.skipif(not FOLDER.is_dir() and os.environ.get("CI") != "true", reason="the recorded queues are not here")


@cache
def jobs(name: str) -> list[RecordedJob]:
    return philly_trace.read(FOLDER / f"{name}.csv")


@cache
def played(name: str, policy: str) -> QueueResult:
    return replay(jobs(name), CLUSTERS[name], policy)


@pytest.mark.parametrize(
    ("name", "policy", "average", "median", "p99"),
    [
        ("ee9e8c", "fifo", 142.0, 104.1, 783),
        ("b436b2", "fifo", 84.1, 87.2, 167),
        ("ee9e8c", "fifo-skip", 105.8, 34.8, 870),
        ("b436b2", "fifo-skip", 48.6, 46.8, 190),
        ("ee9e8c", "sjf-oracle", 101.4, 8.7, 1165),
        ("b436b2", "sjf-oracle", 12.8, 2.9, 158),
        ("ee9e8c", "srtf-oracle", 39.5, 5.2, 782),
        ("b436b2", "srtf-oracle", 7.5, 0.7, 153),
    ],
)
def test_known_policies_give_known_figures(name: str, policy: str, average: float, median: float, p99: float) -> None:
    outcome = played(name, policy)
    assert outcome.jobs == 2000
    assert outcome.average_jct_h == pytest.approx(average, abs=0.06)
    assert outcome.median_jct_h == pytest.approx(median, abs=0.06)
    assert outcome.p99_jct_h == pytest.approx(p99, abs=0.6)


@pytest.mark.parametrize(("name", "policy"), [("b436b2", "fairway"), ("b436b2", "timeshare"), ("ee9e8c", "timeshare")])
def test_ours_is_near_the_oracle_with_few_interruptions(name: str, policy: str) -> None:
    # The whole scheduler on the longer trace takes half a minute: `benchmarks/queueing.py` covers that.
    ours, oracle, fifo = (played(name, which) for which in (policy, "srtf-oracle", "fifo"))
    assert ours.average_jct_h <= 1.2 * oracle.average_jct_h
    assert ours.preemptions_per_job <= 8
    assert ours.p99_jct_h <= 1.1 * fifo.p99_jct_h


def test_more_nodes_help_and_fewer_hurt() -> None:
    name = "b436b2"
    times = [
        replay(jobs(name), CLUSTERS[name].changed(add=add, remove=remove), "timeshare").average_jct_h
        for add, remove in ((4, 0), (0, 0), (0, 3))
    ]
    assert times == sorted(times)


def test_stated_starts_hold_four_times_in_five() -> None:
    foresight = assess(jobs("ee9e8c"), CLUSTERS["ee9e8c"], every=48)
    assert foresight.forecasts >= 50
    assert foresight.covered >= 0.8
    assert foresight.median_error_h < 0.5 * foresight.naive_median_error_h
