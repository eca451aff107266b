"""The daemon crashes at every act that a crash could interrupt; the next one finds everything and completes the request."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable

import pytest
from daemon_home import UNAVAILABLE, DaemonHome, is_alive

from fairway.app.system import crash_point

PLACES = [f"{point}:{moment}" for point in crash_point.POINTS for moment in ("before", "after")]
NOT_FOUND = 3
LATER = [f"engine.lock:after:{count}" for count in (2, 3, 6)]
LATER += ["engine.rename:after:2", "engine.create:before:2", "engine.signal:after:2"]
"""Between the two tasks of a gang, and between the locks of a task."""
EVERY = "FAIRWAY_TEST_EVERY_CRASH" in os.environ
"""Whether the daemon crashes not only the first time that it reaches a place, but each time; takes ten minutes."""


def live(home: DaemonHome) -> None:
    """Do what a user does in a day, from a secret to a deleted run. Requests without a response are repeated."""
    home.persist("secret", "set", "TOKEN", say="open sesame")
    assert home.persist("secret", "list", "-o", "name") == "TOKEN"
    first = submit(home, "gang")
    wait_running(home, first)
    home.tell(first)
    home.until_phase(first, "Succeeded")
    second = submit(home, "again")
    wait_running(home, second)
    home.persist("stop", second)
    home.until_phase(second, "Stopped")
    home.persist("delete", second, well=(0, NOT_FOUND))
    third = submit(home, "third")
    wait_running(home, third)
    home.persist("delete", third, well=(0, NOT_FOUND))
    assert home.names() == [first]


def submit(home: DaemonHome, name: str) -> str:
    """A gang of two on two GPUs, with a snapshot of code and a secret."""
    path = home.write(home.document(name, code=".", secrets=["TOKEN"], role={"resources": {"gpu": 1}}))
    before = set(home.names())
    while (ended := home.call("submit", path)).returncode:
        assert ended.returncode == UNAVAILABLE, ended.stderr
        home.unanswered += 1
        # The response was lost. The list shows whether the run was created: it must be there once, or not at all.
        made = set(home.names()) - before
        assert len(made) <= 1
        if made:
            return made.pop()
    return ended.stdout.strip()


def wait_running(home: DaemonHome, run: str) -> None:
    """Wait until both programs have started, each on its own device."""
    view = home.until_phase(run, "Running")
    tasks = [f"{run}/{task['name']}#{task['attempt']}" for task in view["tasks"]]
    assert len(tasks) == 2
    pids = home.until_started(*tasks)
    assert all(is_alive(pids[task]) for task in tasks)
    assert len({task["devices"][0] for task in view["tasks"]}) == 2


def live_through(home: DaemonHome, place: str) -> bool:
    """Play the story with a daemon that crashes at a place. Return whether it got there."""
    daemon = home.start_child(FAIRWAY_CRASH_AT=place)
    home.until(lambda: home.status()["running"] or daemon.poll() is not None, "the start of the daemon")
    live(home)
    if daemon.poll() is None:
        return False
    assert daemon.returncode == -signal.SIGKILL
    assert home.unanswered <= 1, "one death leaves one question unanswered"
    home.started()
    home.check_nothing_held()
    return True


@pytest.mark.timeout(1200 if EVERY else 120)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_lost_when_the_daemon_dies(make_home: Callable[..., DaemonHome], place: str) -> None:
    for count in itertools.count(1) if EVERY else [1]:
        home = make_home(f"home-{count}")
        if not live_through(home, f"{place}:{count}"):
            assert count > 1, f"nothing reaches {place}"
            return
        home.close()


@pytest.mark.parametrize("place", LATER)
def test_nor_when_it_dies_a_little_later(home: DaemonHome, place: str) -> None:
    assert live_through(home, place), f"nothing reaches {place}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", ["store.commit:after:4", "registry.rename:after:1"])
def test_a_daemon_that_dies_again_and_again_still_gets_there(home: DaemonHome, place: str) -> None:
    """Each daemon gets one step further than the one before, and crashes there."""
    home.environment["FAIRWAY_CRASH_AT"] = place
    live(home)
    daemons = (home.path / "daemon.log").read_text().count("Started server process")
    assert daemons > 2, "it died often"
    home.started()
    home.check_nothing_held()
