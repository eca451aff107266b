"""Curves drawn with a few characters."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from fairway.views.text.curve import bar, plot, resample, sparkline

floats = st.floats()


def test_a_sparkline_goes_from_low_to_high() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([3.0, 3.0]) == "▅▅"
    assert sparkline([0.0, math.nan, 1.0]) == "▁ █"
    assert sparkline([math.nan]) == ""
    assert sparkline([]) == ""


@given(st.lists(floats, max_size=100), st.integers(1, 30))
def test_a_sparkline_is_never_too_long(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) <= width


def test_many_values_become_means() -> None:
    assert resample([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]
    assert resample([1.0, 2.0], 5) == [1.0, 2.0]


def test_a_bar_shows_the_part() -> None:
    assert bar(0.5, 10) == "█████░░░░░"
    assert bar(-1, 4) == "░░░░"
    assert bar(7, 4) == "████"


def test_a_straight_line_is_straight() -> None:
    assert plot([(0, 0), (1, 1)], width=2, height=1) == ["⡠⠊"]
    assert plot([(0, 1), (1, 0)], width=2, height=1) == ["⠑⢄"]


def test_no_curve_is_not_drawn() -> None:
    assert plot([]) == []
    assert plot([(1, 2)]) == []
    assert plot([(1, 2), (1, 3)]) == []
    assert plot([(1, math.nan), (2, math.inf)]) == []


@given(st.lists(st.tuples(floats, floats), max_size=50))
def test_a_plot_keeps_to_its_room(points: list[tuple[float, float]]) -> None:
    lines = plot(points, width=10, height=3)
    assert len(lines) in (0, 3)
    assert all(len(line) <= 10 for line in lines)
