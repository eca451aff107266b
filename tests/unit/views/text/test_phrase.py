"""Formatting of times, numbers and lists."""

from __future__ import annotations

import math

import pytest

from fairway.state.job import ResumePoint
from fairway.state.task import TaskExit
from fairway.views.text import phrase


@pytest.mark.parametrize(
    ("passed", "said"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_799, "47h"), (172_800, "2d")],
)
def test_ages(passed: float, said: str) -> None:
    assert phrase.age(1_000_000.0 - passed, 1_000_000.0) == said


def test_a_moment_ago_is_now() -> None:
    assert (phrase.ago(99.5, 100.0), phrase.ago(40.0, 100.0)) == ("just now", "60s ago")


def test_no_age_is_a_dash() -> None:
    assert phrase.age(None, 5.0) == "-"
    assert phrase.span(None) == "-"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.31415926, "0.3142"), (3.0, "3"), (1_234_567.0, "1,234,567"), (12_345.67, "12,346"), (1.2e-5, "1.2e-05"),
        (1e12, "1e+12"), (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (-0.5, "-0.5"), (0.0, "0"),
    ],
)  # fmt: skip
def test_metrics(value: float, said: str) -> None:
    assert phrase.measure(value) == said


def test_counts_and_lists() -> None:
    assert [phrase.count(1, "worker"), phrase.count(2, "worker"), phrase.count(2, "ps"), phrase.count(1200, "step")] == [
        "1 worker", "2 workers", "2 ps", "1,200 steps",
    ]  # fmt: skip
    assert [phrase.listing(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


UNKNOWN = "started again; from which step is not known, since no checkpoint is known"


@pytest.mark.parametrize(
    ("resume", "said"),
    [
        (ResumePoint(4200, 90.0), "resumed from step 4,200, lost 1m30s of work"),
        (ResumePoint(4200, 90.0, 15), "resumed from step 4,200, lost 15 steps (1m30s of work)"),
        (ResumePoint(4200), "resumed from step 4,200"),
        (ResumePoint(0, 0.2), "resumed from step 0, lost less than 1s of work"),
        (ResumePoint(None, 12.3, 7), f"{UNKNOWN}; at most 7 steps (12s of work) lost"),
        (ResumePoint(None, 12.3), f"{UNKNOWN}; at most 12s of work lost"),
        (ResumePoint(), UNKNOWN),
    ],
)
def test_resumes(resume: ResumePoint, said: str) -> None:
    assert phrase.resume(resume) == said


def test_ends() -> None:
    ends = [TaskExit(3), TaskExit(None, 9), TaskExit(None, 9, out_of_memory=True), TaskExit(), TaskExit(None, 250)]
    assert [phrase.exit_of(end) for end in ends] == ["exit 3", "SIGKILL", "out of memory", "-", "signal 250"]
