"""Crash points: they kill the process where they are armed, and do nothing otherwise."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from fairway.app.system import crash_point


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Record signals instead of sending them."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    yield sent
    crash_point.arm("")


def pass_through(point: str, kills: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the number of kills at the end of the guarded action, and after the crash point."""
    with crash_point.reach(point):
        during = len(kills)
    return during, len(kills)


def test_disarmed_nothing_happens(kills: list[tuple[int, int]]) -> None:
    assert pass_through("store.commit", kills) == (0, 0)


def test_before_kills_before_the_act(kills: list[tuple[int, int]]) -> None:
    crash_point.arm("store.commit:before")
    assert pass_through("store.commit", kills) == (1, 1)
    assert kills == [(os.getpid(), signal.SIGKILL)]


def test_after_kills_after_the_act(kills: list[tuple[int, int]]) -> None:
    crash_point.arm("store.commit:after")
    assert pass_through("store.commit", kills) == (0, 1)


def test_only_the_armed_point_kills(kills: list[tuple[int, int]]) -> None:
    crash_point.arm("store.commit:after")
    assert pass_through("engine.spawn", kills) == (0, 0)


def test_a_count_means_that_many_times(kills: list[tuple[int, int]]) -> None:
    crash_point.arm("store.commit:before:3")
    assert [pass_through("store.commit", kills)[0] for _ in range(3)] == [0, 0, 1]


def test_an_act_that_fails_is_not_passed(kills: list[tuple[int, int]]) -> None:
    crash_point.arm("store.commit:after")
    with pytest.raises(OSError, match="full"), crash_point.reach("store.commit"):
        raise OSError("full")
    assert kills == []


@pytest.mark.parametrize("place", ["nowhere:before", "store.commit", "store.commit:now", "store.commit:before:x"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match=r"crash point|not enough values|invalid literal"):
        crash_point.arm(place)
    crash_point.arm("")


def test_a_point_can_be_armed_for_one_kind_of_thing(kills: list[tuple[int, int]]) -> None:
    crash_point.arm("api.create/pods:before")
    with crash_point.reach("api.create", "secrets"):
        assert kills == []
    with crash_point.reach("api.create", "pods"):
        assert len(kills) == 1
