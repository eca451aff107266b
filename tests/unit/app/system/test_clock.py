"""The clock: changes of the machine's time must neither fire timeouts nor delay them; and the groups of users."""

from __future__ import annotations

import grp
import os
import pwd
import time
from pathlib import Path

import pytest

from fairway.app.system import clock as system_clock
from fairway.app.system.clock import SystemClock, SystemGroups

HOUR = 3600.0


class Machine:
    """A machine whose wall clock can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = 1_700_000_000.0
        self.monotonic = 500.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.monotonic)

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_it_tells_the_time_of_day(machine: Machine) -> None:
    assert SystemClock().now() == pytest.approx(1_700_000_000.0)


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 20 * 365 * 24 * HOUR, -0.5])
def test_a_jump_of_the_wall_clock_is_not_seen(machine: Machine, jump: float) -> None:
    clock = SystemClock()
    before = clock.now()
    machine.wall += jump
    machine.passes(10)
    assert clock.now() - before == pytest.approx(10)


def test_it_never_goes_back(machine: Machine) -> None:
    clock = SystemClock()
    seen = [clock.now()]
    for jump in (5.0, -7.0, 0.0, -100.0, 100.0):
        machine.wall += jump
        machine.passes(0.25)
        seen.append(clock.now())
    assert seen == sorted(set(seen))


def test_a_new_clock_takes_the_corrected_time(machine: Machine) -> None:
    old = SystemClock()
    machine.wall += HOUR
    assert SystemClock().now() - old.now() == pytest.approx(HOUR)


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("first\n")
    monkeypatch.setattr(system_clock, "_BOOT_ID", path)
    return path


@pytest.mark.parametrize("jump", [48 * HOUR, -48 * HOUR])
def test_a_clock_after_a_restart_goes_on_where_the_last_one_was(
    machine: Machine, tmp_path: Path, boot: Path, jump: float
) -> None:
    before = SystemClock(tmp_path / "clock.json").now()
    machine.wall += jump
    machine.passes(10)
    again = SystemClock(tmp_path / "clock.json")
    assert again.now() - before == pytest.approx(10)
    machine.passes(5)
    assert SystemClock(tmp_path / "clock.json").now() - before == pytest.approx(15)


def test_after_a_boot_the_wall_clock_is_read_again(machine: Machine, tmp_path: Path, boot: Path) -> None:
    SystemClock(tmp_path / "clock.json")
    machine.wall += HOUR
    machine.monotonic = 3.0
    boot.write_text("second\n")
    assert SystemClock(tmp_path / "clock.json").now() == pytest.approx(machine.wall)


def test_when_nothing_lives_the_wall_clock_is_followed(machine: Machine, tmp_path: Path, boot: Path) -> None:
    SystemClock(tmp_path / "clock.json")
    machine.wall += HOUR
    clock = SystemClock(tmp_path / "clock.json")
    clock.follow_wall()
    assert clock.now() == pytest.approx(machine.wall)
    assert SystemClock(tmp_path / "clock.json").now() == pytest.approx(machine.wall)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"boot": "first"}', '{"boot": "first", "offset": "x"}', '{"boot": "first", "offset": NaN}']
)
def test_a_damaged_anchor_is_as_good_as_none(machine: Machine, tmp_path: Path, boot: Path, text: str) -> None:
    (tmp_path / "clock.json").write_text(text)
    assert SystemClock(tmp_path / "clock.json").now() == pytest.approx(machine.wall)


def test_an_anchor_that_cannot_be_written_costs_nothing(machine: Machine, tmp_path: Path, boot: Path) -> None:
    (tmp_path / "clock.json").mkdir()
    assert SystemClock(tmp_path / "clock.json").now() == pytest.approx(machine.wall)


def test_the_groups_of_whoever_runs_this_are_known() -> None:
    user = pwd.getpwuid(os.getuid())
    found = SystemGroups().groups_of(user.pw_name)
    assert _name_of(user.pw_gid) in found


def test_nobody_is_called_so() -> None:
    assert SystemGroups().groups_of("nobody is called so") == ()
    assert SystemGroups().groups_of("") == ()
    assert SystemGroups().groups_of("a\0b") == ()


def _name_of(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
