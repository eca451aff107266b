"""Many callers, one daemon; two homes, one machine; and no other user has access."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_home import FAIRWAY, DaemonHome

CALLERS = 100
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@pytest.mark.timeout(240)
def test_a_hundred_callers_at_once_start_one_daemon(home: DaemonHome) -> None:
    script = [FAIRWAY, "daemon", "status", "-o", "name"]
    assert subprocess.run(script, env=home.environment, capture_output=True, check=False).returncode == 4
    callers = [
        subprocess.Popen([FAIRWAY, "list", "-o", "json"], env=home.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(CALLERS)
    ]
    answers = [(*caller.communicate(timeout=200), caller.returncode) for caller in callers]
    assert [(said, code) for _, said, code in answers if code != 0] == []
    starts = [line for line in home.log.splitlines() if "Started server process" in line]
    assert len(starts) == 1, home.log
    daemons = [pid for pid, text in home.processes().items() if "fairway.bootstrap" in text]
    assert daemons == [home.status()["pid"]]


@pytest.mark.timeout(240)
def test_many_submits_at_once_all_get_a_number_of_their_own(home: DaemonHome) -> None:
    path = home.write(home.document("crowd", 1, "true", role={"resources": {"cpu": "100m"}}))
    callers = [
        subprocess.Popen(
            [FAIRWAY, "submit", path], env=home.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(20)
    ]
    names = [caller.communicate(timeout=200)[0].strip() for caller in callers]
    assert sorted(names) == sorted(f"crowd-{number}" for number in range(1, 21))
    for name in names:
        home.until_phase(name, "Succeeded")
    home.check_nothing_held()


def test_a_second_daemon_for_the_same_home_is_refused(home: DaemonHome) -> None:
    first = home.start_daemon()
    second = home.start_child()
    assert second.wait(30) == 4
    assert "another daemon runs" in (home.runtime / "child.log").read_text()
    assert home.status()["pid"] == first


def test_two_homes_share_the_devices_of_one_machine(make_home: Callable[..., DaemonHome]) -> None:
    one, other = make_home("one", FAIRWAY_FAKE_GPUS="1xA100"), make_home("other", FAIRWAY_FAKE_GPUS="1xA100")
    holder = one.submit(one.document("holder", 1, role={"resources": {"gpu": 1}}))
    device = one.until_phase(holder, "Running")["tasks"][0]["devices"]
    waiting = other.submit(other.document("waits", 1, role={"resources": {"gpu": 1}}))
    held = other.until(lambda: (found := other.get(waiting))["hold"] and found, "the wait")
    assert held["phase"] == "Pending"
    why = other.ask("why", waiting)
    assert "another fairway home of user" in why
    assert other.started() == {}
    one.tell(holder)
    one.until_phase(holder, "Succeeded")
    started = other.until_phase(waiting, "Running")
    assert started["tasks"][0]["devices"] == device
    other.tell(waiting)
    other.until_phase(waiting, "Succeeded")
    other.check_nothing_held()


def test_a_killed_home_lets_go_of_its_devices(make_home: Callable[..., DaemonHome]) -> None:
    one, other = make_home("one", FAIRWAY_FAKE_GPUS="1xA100"), make_home("other", FAIRWAY_FAKE_GPUS="1xA100")
    holder = one.submit(one.document("holder", 1, role={"resources": {"gpu": 1}}))
    one.until_phase(holder, "Running")
    waiting = other.submit(other.document("waits", 1, role={"resources": {"gpu": 1}}))
    one.kill_daemon()
    assert other.until(lambda: other.get(waiting)["hold"], "the wait"), "the task lives on, and so does its lock"
    one.close()  # all its processes end at once, as when its user's session is killed
    other.until_phase(waiting, "Running")
    other.tell(waiting)
    other.until_phase(waiting, "Succeeded")


def test_tasks_of_two_homes_never_get_the_same_port(make_home: Callable[..., DaemonHome]) -> None:
    one, other = make_home("one"), make_home("other")
    views = []
    for home in (one, other):
        run = home.submit(home.document("ports", 3))
        views.append(home.until_phase(run, "Running"))
    addresses = [task["address"] for view in views for task in view["tasks"]]
    assert len(set(addresses)) == 6


def test_only_the_owner_can_read_anything(home: DaemonHome, tmp_path: Path) -> None:
    (home.work / "open.txt").write_text("for everybody")
    (home.work / "open.txt").chmod(0o666)
    before = os.umask(0)  # the most permissive umask a caller can have
    try:
        home.ask("secret", "set", "TOKEN", say="open sesame")
        document = home.document("private", 2, code=".", secrets=["TOKEN"], outputs={"model": "private"})
        run = home.submit(document)
        home.until_phase(run, "Running")
        in_place = home.ask("run", "-d", "--name", "placed", "--gpus", "0", "--", "true")
        home.until_phase(in_place, "Succeeded")
    finally:
        os.umask(before)
    bad = [found for folder in (home.path, home.runtime / "fairway") for found in _open_to_others(folder)]
    home.tell(run)
    home.until_phase(run, "Succeeded")
    bad += [found for folder in (home.path, home.runtime / "fairway") for found in _open_to_others(folder)]
    assert sorted(set(bad)) == []
    socket = home.status()["socket"]
    assert stat.S_ISSOCK(os.stat(socket).st_mode)
    assert not os.stat(socket).st_mode & OTHERS


def _open_to_others(folder: Path) -> list[str]:
    """Return the files and folders that other users could read or write if they got there; modes of links do not count."""
    found = []
    for path in [folder, *folder.rglob("*")]:
        mode = path.lstat().st_mode
        if mode & OTHERS and not stat.S_ISLNK(mode):
            found.append(f"{stat.filemode(mode)} {path.relative_to(folder.parent)}")
    return found
