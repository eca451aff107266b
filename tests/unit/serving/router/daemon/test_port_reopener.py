from __future__ import annotations

from pathlib import Path

import pytest

from fairway.serving.router.daemon.port_reopener import await_starts, reopen
from fairway.serving.router.keeper import bind, take_lock
from fairway.serving.router.router_folder import PLAN, SERVICE, home_of, short_folder
from fairway.serving.router.wire_format import encode_plan
from fairway.state.serving.route import RoutePlan

NAME = "default/adds"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The folder of a service whose former port now belongs to another program, so that no keeper keeps running for it."""
    home = home_of(tmp_path / "routers", NAME)
    home.mkdir(parents=True)
    short_folder(tmp_path, home).mkdir()
    (home / SERVICE).write_text(NAME)
    (home / PLAN).write_bytes(encode_plan(RoutePlan(NAME, host="127.0.0.1")))
    (home / "port").write_text("1")
    return home


def test_a_port_that_cannot_be_opened_is_left_to_the_first_turn(recorded: Path, tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        (recorded / "port").write_text(str(taken.getsockname()[1]))
        starts = reopen(tmp_path / "routers", tmp_path)
        await_starts(starts)
    assert [start.returncode for start in starts] == [1]


def test_a_keeper_that_lives_is_left_alone(recorded: Path, tmp_path: Path) -> None:
    take_lock(str(recorded))
    assert reopen(tmp_path / "routers", tmp_path) == []


@pytest.mark.parametrize("missing", [PLAN, "port", SERVICE])
def test_a_service_that_never_listened_gets_no_port(recorded: Path, tmp_path: Path, missing: str) -> None:
    (recorded / missing).unlink()
    assert reopen(tmp_path / "routers", tmp_path) == []


def test_a_service_that_was_about_to_move_is_left_to_the_first_turn(recorded: Path, tmp_path: Path) -> None:
    (recorded / PLAN).write_bytes(encode_plan(RoutePlan(NAME, host="127.0.0.1", port=2)))
    assert reopen(tmp_path / "routers", tmp_path) == []


def test_nothing_is_opened_where_no_service_was_served(tmp_path: Path) -> None:
    assert reopen(tmp_path / "routers", tmp_path) == []
