"""A disk that fills up: under the logs, under the store, under a checkpoint. Earlier promises still hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon_home import DaemonHome

SIZE = 24 << 20

CHATTER = """
import os, sys, time
line = b"x" * 65535 + b"\\n"
try:
    while True:
        os.write(1, line)
except OSError as error:
    open(os.environ["MARKS"] + "/full", "w").write(str(error.errno))
while not os.path.exists(os.environ["MARKS"] + "/go-" + os.environ["FAIRWAY_JOB"]):
    time.sleep(0.01)
sys.exit(9)
"""

SAVER = """
import os, sys, time
import fairway
marks = os.environ["MARKS"]
with fairway.checkpoint.save(1) as folder:
    (folder / "weights").write_bytes(b"1" * 1000)
try:
    with fairway.checkpoint.save(2) as folder:
        with open(folder / "weights", "wb") as file:
            while True:
                file.write(b"2" * 65536)
                file.flush()
except OSError as error:
    print("could not save:", error.strerror, flush=True)
found = fairway.checkpoint.latest(deep=True)
open(marks + "/after", "w").write(str(found.step))
sys.exit(0)
"""


@pytest.fixture
def small(make_home: Callable[..., DaemonHome], tmp_path: Path) -> Iterator[DaemonHome]:
    """A home on a small disk of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", disk], check=False, capture_output=True, text=True
    )
    if mounted.returncode and not os.environ.get("CI"):
        pytest.skip(f"no disk of its own can be mounted here: {mounted.stderr.strip()}")
    assert mounted.returncode == 0, mounted.stderr
    try:
        home = make_home(disk=disk)
        yield home
        home.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def script(home: DaemonHome, text: str) -> list[str]:
    path = home.work / "script.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def fill(home: DaemonHome) -> Path:
    """Allocate every free block."""
    ballast = home.path.parent / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast


def test_a_log_that_fills_the_disk_hurts_nobody_for_good(small: DaemonHome) -> None:
    run = small.submit(small.document("chatter", 1, *script(small, CHATTER)))
    full = small.marks / "full"
    assert small.until(lambda: full.exists() and full.read_text(), "the full disk") == "28"
    small.tell(run)
    small.until((small.attempt(f"{run}/worker-0#0") / "exit.json").exists, "the record of its end")
    # The store cannot be written; a caller gets an error that states it, or the last known state, but never a false one.
    told = small.call("get", run, "-o", "json")
    assert told.returncode in (0, 4), told.stderr
    small.ask("daemon", "status")
    log = small.attempt(f"{run}/worker-0#0") / "out-0.log"
    os.truncate(log, 1000)
    view = small.until_phase(run, "Failed")
    assert (view["outcome"]["reason"], view["outcome"]["exit_code"]) == ("Error", 9)
    assert small.submit(small.document("after", 1, "true")) == "after-1"
    small.until_phase("after-1", "Succeeded")
    small.check_nothing_held()


def test_on_a_full_disk_a_submit_is_refused_and_nothing_is_half_made(small: DaemonHome) -> None:
    small.start_daemon()
    before = small.submit(small.document("before", 1))
    small.until_phase(before, "Running")
    ballast = fill(small)
    refused = small.call("submit", small.write(small.document("refused", 1)))
    assert refused.returncode == 4, refused.stderr
    assert "disk is full" in refused.stderr or "No space left" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert small.names() == [before]
    small.tell(before)
    small.until((small.attempt(f"{before}/worker-0#0") / "exit.json").exists, "the record of its end")
    ballast.unlink()
    small.until_phase(before, "Succeeded")
    again = small.submit(small.document("refused", 1))
    small.until_phase(again, "Running")
    small.tell(again)
    small.until_phase(again, "Succeeded")
    assert sorted(small.names()) == sorted([before, again])
    small.check_nothing_held()


def test_what_was_seen_while_the_disk_was_full_is_remembered_when_it_no_longer_is(small: DaemonHome) -> None:
    run = small.submit(small.document("seen", 1))
    small.until_phase(run, "Running")
    ballast = fill(small)
    small.tell(run)
    small.until(lambda: "store: commit failed" in small.log or small.get(run)["phase"] == "Succeeded", "the failed commit")
    ballast.unlink()
    (task,) = small.until_phase(run, "Succeeded")["tasks"]
    assert (task["phase"], task["exit_code"]) == ("Succeeded", 0)


def test_a_daemon_that_starts_on_a_full_disk_says_so_or_works(small: DaemonHome) -> None:
    run = small.submit(small.document("before", 1))
    small.until_phase(run, "Running")
    small.kill_daemon()
    ballast = fill(small)
    answer = small.call("get", run)
    assert answer.returncode in (0, 4)
    if answer.returncode:
        assert "disk is full" in answer.stderr or "No space left" in answer.stderr, answer.stderr
    ballast.unlink()
    small.until_phase(run, "Running")
    small.tell(run)
    small.until_phase(run, "Succeeded")


def test_a_task_that_cannot_be_started_for_want_of_room_waits_and_starts(small: DaemonHome) -> None:
    holder = small.submit(small.document("holder", 1, role={"processes": 1, "resources": {"gpu": 2}}))
    small.until_phase(holder, "Running")
    waiting = small.submit(small.document("waits", 1, role={"processes": 1, "resources": {"gpu": 2}}))
    small.until(lambda: small.get(waiting)["hold"], "the wait")
    ballast = fill(small)
    small.tell(holder)
    small.until((small.attempt(f"{holder}/worker-0#0") / "exit.json").exists, "the record of its end")
    small.call("get", waiting)
    ballast.unlink()
    small.until_phase(holder, "Succeeded")
    small.until_phase(waiting, "Running")
    small.tell(waiting)
    small.until_phase(waiting, "Succeeded")
    assert len(small.started()) == 2


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(small: DaemonHome) -> None:
    run = small.submit(small.document("saver", 1, *script(small, SAVER)))
    small.until((small.marks / "after").exists, "the failed save")
    assert (small.marks / "after").read_text() == "1"
    view = small.until_phase(run, "Succeeded")
    assert "could not save: No space left on device" in small.ask("logs", run)
    assert view["progress"]["checkpoint_step"] == 1
    small.check_nothing_held()


def remount(home: DaemonHome, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", home.path.parent], check=True)


def test_a_read_only_disk_is_named_with_its_mount_and_the_fix(small: DaemonHome) -> None:
    run = small.submit(small.document("before", 1))
    small.until_phase(run, "Running")
    small.tell(run)
    small.until_phase(run, "Succeeded")
    small.ask("daemon", "stop")
    files = sorted(str(path) for path in small.path.rglob("*"))
    small.until(lambda: not small.processes(), "the end of its processes")
    remount(small, "ro")
    try:
        answer = small.call("list")
    finally:
        remount(small, "rw")
    assert answer.returncode == 4, answer.stderr
    assert f"the file system mounted at {small.path.parent} is read-only" in answer.stderr
    assert "remount,rw" in answer.stderr
    assert "reinstall fairway" not in answer.stderr
    assert "Traceback" not in answer.stderr
    assert sorted(str(path) for path in small.path.rglob("*")) == files
    assert small.names() == [run]


def test_a_daemon_that_cannot_start_for_want_of_room_names_the_mount_and_the_room(small: DaemonHome) -> None:
    small.path.mkdir()
    ballast = fill(small)
    answer = small.call("list")
    assert answer.returncode == 4, answer.stderr
    assert f"the file system mounted at {small.path.parent} has room for" in answer.stderr
    assert "remove files below" in answer.stderr
    assert "Traceback" not in answer.stderr
    ballast.unlink()
    assert small.names() == []
