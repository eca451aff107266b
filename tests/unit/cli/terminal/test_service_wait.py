"""The output of a wait for a service, and when the wait ends."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from fairway.cli.terminal import service_wait
from fairway.cli.terminal.service_wait import ServiceWait


def seen(**more: Any) -> dict[str, Any]:
    return {
        "name": "adds", "url": "http://127.0.0.1:1", "phase": "Starting", "ready_replicas": 0, "wanted_replicas": 1,
        "message": "", "release": {"part": 0.0, "source": 0}, "faults": [], "replicas": [], "revisions": [], **more,
    }  # fmt: skip


class Session:
    """A daemon that returns one state after the other, and keeps returning the last."""

    def __init__(self, *states: dict[str, Any], logs: str = "") -> None:
        self._states = list(states)
        self._logs = logs

    def fetch(self, _path: str) -> dict[str, Any]:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def call(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._logs.encode())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_wait, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(service_wait, "QUIET", 0.0)


def settle(*states: dict[str, Any], seconds: float | None = None, logs: str = "") -> tuple[ServiceWait, dict[str, Any], str]:
    watch = ServiceWait(Session(*states, logs=logs), "adds", None if seconds is None else time.monotonic() + seconds)  # type: ignore[arg-type]
    return watch, *watch.settle()


READY = seen(phase="Ready", ready_replicas=1, release=None)


def test_a_change_of_address_is_waited_for() -> None:
    moves = seen(phase="Ready", ready_replicas=1, release=None, moving=True)
    _, found, reason = settle(moves, {**moves, "faults": [{"work": "answer requests", "cause": "refused"}]}, READY)
    assert (found, reason) == (READY, "")


def test_an_address_that_cannot_be_had_is_told() -> None:
    fault = {"work": "route", "cause": "port 80 is in use by another program"}
    _, _, reason = settle(seen(phase="Ready", ready_replicas=1, release=None, moving=True, faults=[fault]))
    assert reason == "it keeps its previous endpoint: port 80 is in use by another program"


def test_each_state_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    waits = [{"name": "r1-1", "phase": "Waiting", "message": "needs 1 CPU; 0 of 2 are free"}]
    tried = [seen(message=f"tried {count} times in {count}s") for count in (1, 2, 3)]
    _, found, reason = settle(seen(), seen(), seen(replicas=waits), seen(replicas=waits), *tried, READY)
    assert (found, reason) == (READY, "")
    assert capsys.readouterr().err.splitlines() == [
        "adds: Starting, 0 of 1 replicas ready",
        "adds: Starting, 0 of 1 replicas ready; waits: r1-1: needs 1 CPU; 0 of 2 are free",
        "adds: Starting, 0 of 1 replicas ready; waits: tried 1 times in 1s",
    ]


def test_at_the_end_of_the_time_it_says_what_it_waited_for() -> None:
    reason = settle(seen(message="r1-1 waits: needs 1 CPU"), seconds=0.01)[2]
    assert reason == "after 0 s Starting, 0 of 1 replicas ready; waits: r1-1 waits: needs 1 CPU"


def test_a_port_that_cannot_be_had_ends_the_wait() -> None:
    assert settle(seen(url="", faults=[{}], message="the port is taken by process 7"))[2] == "the port is taken by process 7"


def test_a_server_that_keeps_ending_ends_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    logs = "r1-2 | error: no weights\nr1-2 |   fix: this is old\nr1-3 | error: no weights\nr1-3 |   fix: export it\n"
    ending = seen(message="it exited", revisions=[{"number": 1, "failures": 3, "phase": "New"}])
    watch, found, reason = settle(ending, logs=logs)
    watch.explain(found, reason)
    assert capsys.readouterr().err.splitlines() == [
        "r1-3 | error: no weights",
        "r1-3 |   fix: export it",
        "adds does not answer: its server was started 3 times and ended each time (it exited)",
        "  fix: export it",
        "the service stays, and Fairway keeps trying: fairway why service/adds; to delete it: fairway delete service/adds",
    ]


def test_a_service_that_needs_no_replica_is_not_waited_for() -> None:
    assert settle(seen(phase="Idle", wanted_replicas=0, release=None))[2] == ""


def test_a_release_that_was_sent_back_ends_the_wait() -> None:
    assert settle(seen(release=None, message="r1 was sent back: none was ready in 10m"))[2].startswith("r1 was sent back")
