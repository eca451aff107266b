"""Every act of a real daemon fails a few times: all of it is completed in the end, without a restart, and nothing else waits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container
from pathlib import Path

import pytest
from daemon_home import PATIENCE, DaemonHome
from test_serving_crash_points import live

from fairway.app.system import crash_point

FAILURES = 2
"""How often the act fails: a first try and its first retry."""


def insist(home: DaemonHome, *words: str, say: str = "") -> str:
    """Run a command until it succeeds: a command may fail with the cause, but it must not hang, and not fail for ever."""
    deadline = time.monotonic() + PATIENCE
    while (ended := home.call(*words, say=say)).returncode:
        assert time.monotonic() < deadline, ended.stderr
    return ended.stdout.strip()


def submit(home: DaemonHome, name: str) -> str:
    """A gang of two on two GPUs, with a snapshot of code and a secret."""
    path = home.write(home.document(name, code=".", secrets=["TOKEN"], role={"resources": {"gpu": 1}}))
    return insist(home, "submit", path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("point", crash_point.POINTS)
def test_what_fails_is_done_in_the_end_without_a_restart(make_home: Callable[..., DaemonHome], point: str) -> None:
    home = make_home("home")
    daemon = home.start_child(FAIRWAY_CRASH_AT=f"{point}:fails:{FAILURES}")
    home.until(lambda: home.status()["running"], "the start of the daemon")
    insist(home, "secret", "set", "TOKEN", say="open sesame")
    first = submit(home, "gang")
    home.until(lambda: phase(home, first) == "Running", f"{first} runs")
    home.tell(first)
    home.until(lambda: phase(home, first) == "Succeeded", f"{first} succeeds")
    second = submit(home, "again")
    home.until(lambda: phase(home, second) == "Running", f"{second} runs")
    insist(home, "stop", second)
    home.until(lambda: phase(home, second) == "Stopped", f"{second} is stopped")
    insist(home, "delete", second)
    third = submit(home, "third")
    home.until(lambda: phase(home, third) == "Running", f"{third} runs")
    insist(home, "delete", third)
    assert daemon.poll() is None, "the daemon ended"
    reached = (home.runtime / "child.log").read_text().count("injected failure")
    assert reached >= FAILURES, f"{point} was reached {reached} times"
    home.until(lambda: not faults(home), "the end of all faults", within=90.0)
    home.check_nothing_held()


def phase(home: DaemonHome, run: str) -> str:
    return str(json.loads(insist(home, "get", run, "-o", "json"))["phase"])


def faults(home: DaemonHome) -> list[dict[str, object]]:
    findings = json.loads(home.call("doctor", "-o", "json").stdout)["findings"]
    return [one for one in findings if one["name"] == "faults" and one["state"] != "ok"]


class Stubborn(DaemonHome):
    """A home whose commands are repeated until they succeed."""

    def persist(self, *words: str, say: str = "", well: Container[int] = (0,)) -> str:
        deadline = time.monotonic() + 2 * PATIENCE
        while (ended := self.call(*words, say=say)).returncode not in well:
            assert time.monotonic() < deadline, f"fairway {' '.join(words)}: {ended.stderr}\n{self.log}"
        return ended.stdout.strip()


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", crash_point.SERVING_POINTS)
def test_a_service_lives_through_a_failure_of_every_act(tmp_path: Path, point: str) -> None:
    home = Stubborn(tmp_path, environment={"FAIRWAY_CRASH_AT": f"{point}:fails:{FAILURES}"})
    try:
        live(home, killed=point == "samples.rename")
        log = (home.path / "daemon.log").read_text()
        assert log.count("Started server process") == 1, "the daemon was started again"
        assert "injected failure" in log, f"nothing reaches {point}"
        home.check_nothing_held()
    finally:
        home.close()
