"""The clock: what a machine does to its own time must not fire timeouts, nor hold them back; and who belongs where."""

from __future__ import annotations

import grp
import os
import pwd
import time

import pytest

from fairway.app.system import SystemClock, SystemPeople

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


def test_the_groups_of_whoever_runs_this_are_known() -> None:
    user = pwd.getpwuid(os.getuid())
    found = SystemPeople().groups_of(user.pw_name)
    assert _name_of(user.pw_gid) in found


def test_nobody_is_called_so() -> None:
    assert SystemPeople().groups_of("nobody is called so") == ()
    assert SystemPeople().groups_of("") == ()
    assert SystemPeople().groups_of("a\0b") == ()


def _name_of(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
