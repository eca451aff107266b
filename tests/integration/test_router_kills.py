"""The processes that hold and serve a service's port are killed in every order: it responds again, and `get` is truthful."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon_home import DaemonHome, kill
from test_services import ask, pids_of, service, write_model

AGAIN = 2.0
"""Seconds within which requests succeed again, and for which `get` may be unaware that they fail."""
KEEPER, ROUTER = "fairway.serving.router.keeper", "fairway.serving.router.process"


@pytest.fixture
def served(home: DaemonHome) -> DaemonHome:
    home.ask("model", "register", "adds", str(write_model(home.work / "v1.onnx", 1)))
    home.ask("serve", "adds@1")
    return home


class Asker:
    """Sends requests continuously, each on its own connection, and records when one failed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answered = 0
        self.down_since: float | None = None
        self.outages: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
                try:
                    well = ask(connection)[0] == 200
                except (OSError, http.client.HTTPException):
                    well = False
            if well:
                self.answered += 1
                self.outages.append(time.monotonic() - (began if self.down_since is None else self.down_since))
                self.down_since = None
            elif self.down_since is None:
                self.down_since = began
            self._over.wait(0.005)

    def __enter__(self) -> Asker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)


class Truth:
    """Runs `get` continuously, and records whether it shows Ready while requests have failed for too long."""

    def __init__(self, home: DaemonHome, asker: Asker) -> None:
        self.lies: list[float] = []
        self.looks = 0
        self._home, self._asker = home, asker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.is_set():
            began, since = time.monotonic(), self._asker.down_since
            phase = service(self._home)["phase"]
            self.looks += 1
            if phase == "Ready" and since is not None and self._asker.down_since == since and began - since > AGAIN:
                self.lies.append(began - since)

    def __enter__(self) -> Truth:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)


@contextlib.contextmanager
def watched(home: DaemonHome) -> Iterator[Asker]:
    """Run a client and a reader of `get`; at the end, neither has seen longer failures than allowed."""
    with Asker(int(service(home)["url"].rpartition(":")[2])) as asker, Truth(home, asker) as truth:
        home.until(lambda: asker.answered > 10, "first answers")
        yield asker
        before, looks = asker.answered, truth.looks
        home.until(lambda: asker.answered > before + 50 and truth.looks > looks + 1, "answers again")
    assert truth.lies == []
    assert max(asker.outages) < AGAIN, sorted(asker.outages)[-5:]


def one(home: DaemonHome, program: str) -> int:
    (found,) = pids_of(home, program)
    return found


def is_replaced(home: DaemonHome, program: str, before: int) -> Callable[[], bool]:
    return lambda: len(pids_of(home, program)) == 1 and pids_of(home, program) != [before]


def test_a_keeper_that_was_killed_is_replaced_without_a_refused_connection(served: DaemonHome) -> None:
    keeper, router = one(served, KEEPER), one(served, ROUTER)
    with watched(served) as asker:
        kill(keeper)
        served.until(is_replaced(served, KEEPER, keeper), "another keeper")
        served.until(is_replaced(served, ROUTER, router), "its router")
        assert asker.down_since is None
    assert service(served)["phase"] == "Ready"


def test_keeper_then_router(served: DaemonHome) -> None:
    keeper, first = one(served, KEEPER), one(served, ROUTER)
    with watched(served):
        kill(keeper)
        # Once the keeper is replaced, the death of a router costs what it costs with the first keeper.
        served.until(is_replaced(served, KEEPER, keeper), "another keeper")
        served.until(is_replaced(served, ROUTER, first), "its router")
        router = one(served, ROUTER)
        kill(router)
        served.until(is_replaced(served, ROUTER, router), "another router")


def test_keeper_and_at_once_its_router(served: DaemonHome) -> None:
    keeper, router = one(served, KEEPER), one(served, ROUTER)
    port = service(served)["url"]
    with watched(served):
        kill(keeper)
        kill(router)
        served.until(is_replaced(served, KEEPER, keeper), "another keeper")
    assert service(served)["url"] == port


def test_router_and_at_once_its_keeper(served: DaemonHome) -> None:
    """The next router is starting when the keeper dies: the keeper holds the port, and cannot pass it on yet."""
    keeper, router = one(served, KEEPER), one(served, ROUTER)
    port = service(served)["url"]
    with watched(served):
        os.kill(router, signal.SIGKILL)
        served.until(lambda: set(pids_of(served, ROUTER)) - {router}, "the next router")
        kill(keeper)
        served.until(is_replaced(served, KEEPER, keeper), "another keeper")
    assert service(served)["url"] == port


def test_a_port_that_gives_no_answer_is_not_ready(served: DaemonHome) -> None:
    """The processes live and the port accepts connections: only a request reveals it."""
    router = one(served, ROUTER)
    os.kill(router, signal.SIGSTOP)
    try:
        served.until(lambda: service(served)["phase"] == "Failing", "the truth")
        found = service(served)
        assert "nothing answers at port" in found["message"]
        assert [fault["work"] for fault in found["faults"]] == ["answer requests"]
    finally:
        os.kill(router, signal.SIGCONT)
    served.until(lambda: service(served)["phase"] == "Ready", "answers again")
    assert json.loads(served.ask("get", "service/adds", "-o", "json"))["faults"] == []


def test_a_fixed_port_is_kept(served: DaemonHome) -> None:
    document = Path(served.work / "service.yaml")
    port = int(service(served)["url"].rpartition(":")[2])
    served.ask("delete", "service/adds")
    document.write_text(f"kind: ModelService\nname: adds\nmodel: adds@1\nport: {port}\n")
    served.ask("apply", "-f", str(document))
    served.until(lambda: service(served)["phase"] == "Ready", "the service")
    keeper, router = one(served, KEEPER), one(served, ROUTER)
    with watched(served) as asker:
        assert asker.port == port
        kill(keeper)
        kill(router)
        served.until(is_replaced(served, KEEPER, keeper), "another keeper")


def test_the_next_daemon_opens_the_port_before_anything_else(served: DaemonHome) -> None:
    """Only the replica was left, and the daemon crashes before it sends a router anything."""
    port = int(service(served)["url"].rpartition(":")[2])
    daemon = served.kill_daemon()
    keeper, router = one(served, KEEPER), one(served, ROUTER)
    kill(keeper)
    kill(router)
    served.until(lambda: not {daemon, keeper, router} & served.processes().keys(), "the end of all three")
    assert not answers(port)
    dying = served.start_child(FAIRWAY_CRASH_AT="router.rename:before")
    assert dying.wait(60) == -signal.SIGKILL
    served.until(lambda: answers(port), "an answer")


def answers(port: int) -> bool:
    """Whether a request to the model succeeds."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        try:
            return ask(connection)[0] == 200
        except (OSError, http.client.HTTPException):
            return False
