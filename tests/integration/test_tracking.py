"""How tasks find the routes for MLflow clients, with a real daemon and real processes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys

import pytest
from daemon_home import DaemonHome
from other_user import STRANGER, do_as, needs_root

SHOW = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('MLFLOW_')}))"
ASK = """
import http.client, json, os
place = os.environ["MLFLOW_TRACKING_URI"].removeprefix("http://")
caller = http.client.HTTPConnection(place)
headers = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
body = {"run_id": os.environ["FAIRWAY_JOB"], "params": [{"key": "lr", "value": "0.1"}],
        "metrics": [{"key": "loss", "value": 0.5, "timestamp": 1000, "step": 3}]}
caller.request("POST", "/api/2.0/mlflow/runs/log-batch", json.dumps(body), headers)
assert caller.getresponse().read() == b"{}"
raise SystemExit(os.environ["MLFLOW_TRACKING_TOKEN"])
"""


def shown(home: DaemonHome, name: str, more: dict[str, str] | None = None, **document: object) -> dict[str, str]:
    """Return the variables that a task of a run sees."""
    home.ask("run", home.write({**home.document(name, 1, sys.executable, "-c", SHOW), **document}), more=more)
    found: dict[str, str] = json.loads(home.ask("logs", name).splitlines()[-1])
    return found


def test_a_task_gets_its_way_in_and_the_users_own_wins(home: DaemonHome) -> None:
    given = shown(home, "plain")
    assert given["MLFLOW_TRACKING_URI"] == f"http://127.0.0.1:{(home.path / 'mlflow' / 'port').read_text().strip()}"
    assert given["MLFLOW_EXPERIMENT_NAME"] == "plain"
    assert given["MLFLOW_TRACKING_TOKEN"] == "***"
    assert shown(home, "elsewhere", env={"MLFLOW_TRACKING_URI": "http://example.org"}) == {
        "MLFLOW_TRACKING_URI": "http://example.org"
    }


def test_what_a_task_says_is_kept_and_its_token_is_never_shown(home: DaemonHome) -> None:
    name = home.submit(home.document("told", 1, sys.executable, "-c", ASK))
    home.persist("wait", name, well=(0, 1))
    job = home.get(name)
    assert job["params"] == {"lr": "0.1"}
    assert job["progress"]["metrics"] == {"loss": 0.5}
    assert "***" in json.dumps(job["tasks"])
    secret = (home.path / "mlflow" / "secret").read_text()
    written = [path for path in (home.path / "jobs").rglob("*") if path.is_file() and path.name.endswith(".json")]
    token = next(line.split()[-1] for line in _raw_log(home, name) if f"default/{name}." in line)
    assert len(token) == len(f"default/{name}.") + 64
    for text in (json.dumps(job), home.ask("logs", name), home.ask("get", name), *(path.read_text() for path in written)):
        assert token not in text
        assert secret not in text


def test_the_door_opens_nothing_else(home: DaemonHome) -> None:
    home.ask("daemon", "start")
    port = int((home.path / "mlflow" / "port").read_text())
    token = next(line for line in (home.path / "mlflow" / "env").read_text().splitlines() if "TOKEN" in line).split("'")[1]
    for headers, path, status in (
        ({}, "/v1/jobs", 401),
        ({}, "/api/2.0/mlflow/experiments/get?experiment_id=0", 401),
        ({"Authorization": f"Bearer {token}"}, "/v1/jobs", 404),
        ({"Authorization": f"Bearer {token}"}, "/v1/secrets", 404),
        ({"Authorization": f"Bearer {token}"}, "/api/2.0/mlflow/experiments/get?experiment_id=0", 200),
    ):
        caller = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        caller.request("GET", path, headers=headers)
        assert caller.getresponse().status == status, path
        caller.close()


TALK = """
import http.client, os, sys, time
place = os.environ["MLFLOW_TRACKING_URI"].removeprefix("http://")
headers = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
path = "/api/2.0/mlflow/runs/get?run_id=" + os.environ["FAIRWAY_JOB"]
marks = os.environ["MARKS"]
while not os.path.exists(marks + "/end"):
    try:
        caller = http.client.HTTPConnection(place, timeout=30)
        caller.request("GET", path, headers=headers)
        word = str(caller.getresponse().status)
        caller.close()
    except OSError as problem:
        word = type(problem).__name__
    with open(marks + "/heard", "a") as file:
        file.write(word + "\\n")
    time.sleep(0.02)
"""


def heard(home: DaemonHome) -> list[str]:
    path = home.marks / "heard"
    return path.read_text().split() if path.exists() else []


@needs_root
def test_after_a_kill_no_other_user_receives_the_token_of_a_task(home: DaemonHome) -> None:
    name = home.submit(home.document("talk", 1, sys.executable, "-c", TALK))
    home.until(lambda: "200" in heard(home), "the task to be answered")
    port = int((home.path / "mlflow" / "port").read_text())
    before = (home.path / "mlflow" / "env").read_text()
    os.kill(int(json.loads(home.ask("daemon", "status", "-o", "json"))["pid"]), signal.SIGKILL)
    home.until(lambda: heard(home)[-1:] == ["ConnectionRefusedError"], "the task to find nobody")
    do_as(STRANGER, lambda: _cannot_listen(port))
    count = len(heard(home))
    home.until(lambda: len(heard(home)) > count + 5, "the task to try again")
    assert set(heard(home)[count:]) == {"ConnectionRefusedError"}
    home.persist("list")
    count = len(heard(home))
    home.until(lambda: "200" in heard(home)[count:], "the task to be answered again, by its old token")
    assert (home.path / "mlflow" / "env").read_text() == before
    (home.marks / "end").touch()
    home.until_phase(name, "Succeeded")


def _cannot_listen(port: int) -> None:
    for address in ("127.0.0.1", ""):
        for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
            with socket.socket() as taken:
                for option in options:
                    taken.setsockopt(socket.SOL_SOCKET, option, 1)
                with pytest.raises(OSError, match="in use"):
                    taken.bind((address, port))


@needs_root
def test_a_token_that_another_user_could_receive_is_void(home: DaemonHome) -> None:
    """Without a task no process holds the port of a killed daemon; a token that is sent there then gives no access later."""
    home.ask("daemon", "start")
    port = int((home.path / "mlflow" / "port").read_text())
    token = next(line for line in (home.path / "mlflow" / "env").read_text().splitlines() if "TOKEN" in line).split("'")[1]
    os.kill(int(json.loads(home.ask("daemon", "status", "-o", "json"))["pid"]), signal.SIGKILL)

    def listen() -> None:
        with socket.create_server(("127.0.0.1", port)):
            pass

    home.until(lambda: not home.processes(), "the daemon and its nursery to be gone")
    do_as(STRANGER, listen)
    home.persist("list")
    caller = http.client.HTTPConnection("127.0.0.1", int((home.path / "mlflow" / "port").read_text()), timeout=30)
    path = "/api/2.0/mlflow/experiments/get?experiment_id=0"
    caller.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    assert caller.getresponse().status == 401
    caller.close()


def _raw_log(home: DaemonHome, name: str) -> list[str]:
    (path,) = (home.path / "jobs" / "default" / name / "attempts").glob("*/out-0.log")
    return path.read_text().splitlines()
