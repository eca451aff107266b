"""A wall clock that is changed, forward or back, neither ends runs nor prevents them from ending."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from daemon_home import DaemonHome

HOURS = 48 * 3600
SITE = """
import os, time
if "FAIRWAY_HOME" in os.environ and os.environ.get("WALL_CLOCK_MOVED"):
    real = time.time
    time.time = lambda: real() + float(os.environ["WALL_CLOCK_MOVED"])
"""


def restart(home: DaemonHome, folder: Path, moved: float) -> None:
    """Kill the daemon and start the next one on a machine whose wall clock was changed in between."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    os.kill(int(json.loads(home.ask("daemon", "status", "-o", "json"))["pid"]), signal.SIGKILL)
    home.environment |= {"PYTHONPATH": str(folder / "site"), "WALL_CLOCK_MOVED": str(moved)}
    home.persist("list")


@pytest.mark.parametrize("moved", [HOURS, -HOURS])
def test_a_restart_after_the_wall_clock_was_set_counts_what_ran(home: DaemonHome, tmp_path: Path, moved: float) -> None:
    long = home.submit(home.document("long", 1, timeout="1h"))
    home.until_phase(long, "Running")
    began = home.get(long)["started"]
    restart(home, tmp_path, moved)
    # The next run is planned, started and ended after the clock change: a wrong deadline would have ended the first one by then.
    short = home.submit(home.document("short", 1, timeout="2s"))
    home.until(lambda: home.get(short)["phase"] == "Failed", "the short run to end")
    ended = home.get(short)
    assert ended["outcome"]["reason"] == "Timeout"
    assert 1.9 <= ended["finished"] - ended["started"] < 30, "its supervisor and the daemon have one clock"
    assert home.get(long)["phase"] == "Running"
    assert home.get(long)["started"] == began
    assert abs(ended["started"] - began) < 300
    home.tell(long)
    home.until_phase(long, "Succeeded")


def test_with_no_run_alive_the_next_daemon_follows_the_wall_clock(home: DaemonHome, tmp_path: Path) -> None:
    first = home.submit(home.document("first", 1))
    home.tell(first)
    home.until_phase(first, "Succeeded")
    restart(home, tmp_path, HOURS)
    second = home.submit(home.document("second", 1))
    home.tell(second)
    home.until_phase(second, "Succeeded")
    assert abs(home.get(second)["started"] - home.get(first)["started"] - HOURS) < 300
