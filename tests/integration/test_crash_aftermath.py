"""What a crash, or a refusal, must not leave behind: folders without a run, forgotten deletions, tasks that never start."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from daemon_home import UNAVAILABLE, DaemonHome

from fairway.engines.local import file_lock


def die(home: DaemonHome, place: str, *words: str) -> None:
    """Run a command; the daemon crashes at a given place during it."""
    daemon = home.start_child(FAIRWAY_CRASH_AT=place)
    home.until(lambda: home.status()["running"] or daemon.poll() is not None, "the start of the daemon")
    answer = home.call_once(*words)
    home.until(lambda: daemon.poll() is not None, f"its death at {place}")
    assert daemon.returncode == -signal.SIGKILL
    assert answer.returncode in (0, UNAVAILABLE), answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("place", ["registry.rename:after:1", "store.number:after:1", "store.commit:before:1"])
def test_a_submit_that_was_cut_short_is_done_once_by_a_client_that_asks_again(home: DaemonHome, place: str) -> None:
    daemon = home.start_child(FAIRWAY_CRASH_AT=place)
    home.until(lambda: home.status()["running"] or daemon.poll() is not None, "the start of the daemon")
    made = home.ask("submit", home.write(home.document("cut", 1, code=".")))
    assert daemon.wait(30) == -signal.SIGKILL
    assert home.names() == [made]
    assert home.unknown_folders() == set()


@pytest.mark.parametrize("place", ["registry.rename:after:1", "store.number:after:1", "store.commit:before:1"])
def test_a_submit_that_was_cut_short_leaves_no_folder(home: DaemonHome, place: str) -> None:
    die(home, place, "submit", home.write(home.document("cut", 1, code=".")))
    assert home.names() == []
    assert home.unknown_folders() == set()


@pytest.mark.parametrize("place", ["engine.rename:after:1", "store.commit:before:1"])
def test_a_run_in_place_that_was_cut_short_does_not_leave_its_callers_environment(home: DaemonHome, place: str) -> None:
    die(home, place, "run", "-d", "--gpus", "0", "--name", "cut", "--", "true")
    assert home.names() == []
    home.until(lambda: not home.unknown_folders(), "the end of a folder that nobody knows", within=5)


def test_a_submit_that_is_refused_leaves_no_folder(home: DaemonHome) -> None:
    (home.work / "link").symlink_to("/etc")
    assert home.call("submit", home.write(home.document("refused", 1, code="."))).returncode == 5
    assert home.names() == []
    assert home.unknown_folders() == set()


@pytest.mark.parametrize(
    "place",
    [
        "store.commit:after:1",
        "engine.forget:before:1",
        "engine.forget:after:1",
    ],
)
def test_a_delete_of_a_running_job_is_finished_by_the_next_daemon(home: DaemonHome, place: str) -> None:
    """The user need not delete again: the next daemon completes the deletion, wherever the first one crashed in it."""
    run = home.submit(home.document("unwanted", 1))
    home.until_started(f"{run}/worker-0#0")
    home.until_phase(run, "Running")
    home.ask("daemon", "stop")
    die(home, place, "delete", run)
    home.until(lambda: home.names() == [], f"the end of {run}", within=5)
    assert home.unknown_folders() == set()
    home.check_nothing_held()


def test_a_task_whose_supervisor_gives_up_late_starts_in_the_end(home: DaemonHome) -> None:
    """The daemon crashed before it released the task; its supervisor, slow as on a machine that swaps, still holds the lock."""
    die(home, "engine.spawn:before:1", "submit", home.write(home.document("late", 1)))
    home.until(lambda: not home.held(), "the end of its supervisor")
    lock = home.attempt("late-1/worker-0#0") / "lock"
    held = home.until(lambda: file_lock.take(Path(lock)), "the lock")
    try:
        home.until(lambda: home.get("late-1")["phase"] != "Pending", "a look at it")
        assert home.started() == {}
    finally:
        file_lock.release(held)
    home.until(lambda: home.get("late-1")["phase"] == "Running", "its start", within=10)
    home.tell("late-1")
    home.until_phase("late-1", "Succeeded")
    assert len(home.started()) == 1


def test_a_stop_that_was_asked_for_is_not_forgotten(home: DaemonHome) -> None:
    run = home.submit(home.document("stopped", 1))
    home.until_started(f"{run}/worker-0#0")
    home.until_phase(run, "Running")
    home.ask("daemon", "stop")
    die(home, "engine.signal:before:1", "stop", run)
    assert home.until_phase(run, "Stopped")["outcome"]["reason"] == "StoppedByUser"
    home.check_nothing_held()
