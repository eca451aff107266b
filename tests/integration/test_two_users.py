"""A second user of the machine can neither read, change, end, delay nor impersonate the work of a home."""

from __future__ import annotations

import ctypes
import fcntl
import http.client
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_home import DaemonHome
from other_user import STRANGER, acting_as, do_as, needs_root, public_folder

from fairway.api.mlflow.token import token_of
from fairway.app.tracking.run import TokenCaller

Attempt = Callable[[], object]
REFUSED = (PermissionError, ConnectionRefusedError)
TASK = """
import os, time, fairway.runtime as fairway
folder = os.environ["FAIRWAY_CHECKPOINT_DIR"]
open(folder + "/weights", "w").write("checkpoint")
open(os.environ["FAIRWAY_OUTPUT_MODEL"] + "/weights.bin", "w").write("model")
print("private words", flush=True)
while not os.path.exists(os.environ["MARKS"] + "/end"):
    time.sleep(0.02)
"""
SERVER = """
import http.server, os
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    do_POST = do_GET
http.server.HTTPServer(("127.0.0.1", int(os.environ["FAIRWAY_PORT"])), Answer).serve_forever()
"""


@pytest.fixture
def public() -> Iterator[Path]:
    with public_folder() as folder:
        yield folder


@pytest.fixture
def victim(public: Path) -> Iterator[DaemonHome]:
    """A home in a folder that every user can enter: only its own modes protect it."""
    home = DaemonHome(public)
    try:
        yield home
    finally:
        home.close()


class Target:
    """What the second user knows of a home: paths, process ids and ports, but no secret."""

    def __init__(self, home: DaemonHome) -> None:
        self.home = home
        home.ask("secret", "set", "KEY", say="s3cr3t-value")
        (home.work / "task.py").write_text(TASK)
        given = {"CALLERS_TOKEN": "s3cr3t-value"}
        command = ("run", "-d", "--name", "work", "--secret", "KEY", "--output", "model=mnist", "-e", f"MARKS={home.marks}")
        self.name = home.ask(*command, "--gpus", "1", "--", sys.executable, str(home.work / "task.py"), more=given)
        home.until_phase(self.name, "Running")
        self.run = home.path / "jobs" / "default" / self.name
        (self.attempt,) = (self.run / "attempts").iterdir()
        home.until(lambda: (self.run / "checkpoints" / "weights").exists(), "the checkpoint")
        begun = json.loads((self.attempt / "started.json").read_bytes())
        self.supervisor, self.task = begun["supervisor"]["pid"], begun["processes"][0]["pid"]
        self.daemon = int(json.loads(home.ask("daemon", "status", "-o", "json"))["pid"])
        self.port = int((home.path / "mlflow" / "port").read_text())
        self.locks = home.machine.parent / f"{home.machine.name}-0"
        (self.claim,) = self.locks.glob("device-*@*")
        (home.work / "server.py").write_text(SERVER)
        home.ask("serve", "--name", "chat", "--", sys.executable, str(home.work / "server.py"))
        # A service with keys and a certificate of its own, which only its owner may read.
        door = ("--name", "door", "--tls", "self-signed", "--key", "ci", "--detach")
        home.ask("serve", *door, "--", sys.executable, str(home.work / "server.py"))
        self.door = home.path / "routers" / "default.door"
        home.until(lambda: (self.door / "port").exists(), "the port of the service with keys")
        (self.sockets) = [path for path in (*home.path.rglob("*"), *home.runtime.rglob("*")) if path.is_socket()]
        assert len(self.sockets) >= 3, self.sockets
        home.until(lambda: self._service()["ready_replicas"] == 1, "the service")
        shown = self._service()
        self.endpoint = int(shown["url"].rpartition(":")[2])
        self.replica = int(shown["replicas"][0]["address"].rpartition(":")[2])

    def _service(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.home.ask("get", "service/chat", "-o", "json"))
        return found

    def at_endpoint(self, method: str, path: str, *lines: str) -> None:
        """Send a request to the service's port; raise `PermissionError` when it refuses."""
        with socket.create_connection(("127.0.0.1", self.endpoint), timeout=30) as caller:
            head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", "Content-Length: 0", *lines]
            caller.sendall("\r\n".join([*head, "", ""]).encode())
            status = int(_rest_of(caller).split(b" ", 2)[1])
        if status in (400, 401, 403, 404):
            raise PermissionError(status)

    def command_router(self, words: bytes) -> None:
        """Send a command of the router's own control socket to the service's port."""
        with socket.create_connection(("127.0.0.1", self.endpoint), timeout=30) as caller:
            caller.sendall(words + b"\n\r\n\r\n")
            answer = _rest_of(caller)
        if not answer or answer.startswith(b"HTTP/1.1 4"):
            raise PermissionError(answer[:40])

    def http(self, method: str, path: str, token: str = "", body: object = None) -> None:
        """Send a request to the MLflow port; raise `PermissionError` when it refuses."""
        caller = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        caller.request(method, path, json.dumps(body) if body is not None else None, headers)
        status = caller.getresponse().status
        caller.close()
        if status in (401, 403):
            raise PermissionError(status)
        assert status >= 500 or status < 400, f"{method} {path} answered {status}: the attempt itself is wrong"


def _rest_of(caller: socket.socket) -> bytes:
    found = b""
    while piece := caller.recv(65536):
        found += piece
    return found


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))


def trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, None, None) != 0:
        raise PermissionError(ctypes.get_errno(), "ptrace")


def lock(path: Path) -> None:
    """Take an exclusive lock on a file of another user, for which it must be opened for writing."""
    with open(path, "r+b") as file:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


def bind(port: int, *options: int) -> None:
    with socket.socket() as taken:
        for option in options:
            taken.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            taken.bind(("127.0.0.1", port))
            taken.listen()
        except OSError as problem:
            raise PermissionError(problem.errno, "bind") from problem


def poke(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
        speaker.sendto(b"default/work-1/worker-0#0", str(path))


def reading(target: Target) -> dict[str, Attempt]:
    home, run = target.home.path, target.run
    files = {
        "the database": home / "fairway.db",
        "a secret": home / "secrets" / "KEY",
        "the daemon's log": home / "daemon.log",
        "the secret of tokens": home / "mlflow" / "secret",
        "the owner's token": home / "mlflow" / "env",
        "the hashes of API keys": target.door / "keys.json",
        "the plan with them": target.door / "plan.json",
        "the key of a certificate": target.door / "tls" / "key.pem",
        "the key of an authority": target.door / "tls" / "authority.key",
        "a run's log": target.attempt / "out-0.log",
        "a run's order": target.attempt / "order.json",
        "a run's environment": run / "environment.json",
        "a checkpoint": run / "checkpoints" / "weights",
        "an output": run / "outputs" / "model" / "weights.bin",
        "the environment of a task": Path(f"/proc/{target.task}/environ"),
        "the memory of a task": Path(f"/proc/{target.task}/mem"),
        "the environment of the daemon": Path(f"/proc/{target.daemon}/environ"),
    }
    missing = [str(path) for path in files.values() if not path.exists()]
    assert missing == [], "an attempt to read what does not exist proves nothing"
    found: dict[str, Attempt] = {f"read {what}": path.read_bytes for what, path in files.items()}
    found["list the home"] = lambda: os.listdir(home)
    found["list the runs"] = lambda: os.listdir(home / "jobs" / "default")
    found["list the open files of a task"] = lambda: os.listdir(f"/proc/{target.task}/fd")
    found["trace a task"] = lambda: trace(target.task)
    return found


def speaking(target: Target) -> dict[str, Attempt]:
    forged = token_of(b"x" * 32, TokenCaller("default", target.name))
    alias = {"name": "mnist", "alias": "champion", "version": "1"}
    root = "/api/2.0/mlflow"
    found: dict[str, Attempt] = {f"connect to {path.name}": (lambda path=path: connect(path)) for path in target.sockets}
    found |= {
        "tell the daemon that a task ended": lambda: poke(target.home.path / "poke"),
        "read a run by MLflow without a token": lambda: target.http("GET", f"{root}/runs/get?run_id={target.name}"),
        "read a run with a forged token": lambda: target.http("GET", f"{root}/runs/get?run_id={target.name}", forged),
        "write a metric with a forged token": lambda: target.http("POST", f"{root}/runs/log-batch", forged, {}),
        "promote a model without a token": lambda: target.http("POST", f"{root}/registered-models/alias", body=alias),
        "promote a model with a forged token": lambda: target.http("POST", f"{root}/registered-models/alias", forged, alias),
        "delete a run with a forged token": lambda: target.http("POST", f"{root}/runs/delete", forged, {"run_id": target.name}),
        "register a model without a token": lambda: target.http("POST", f"{root}/model-versions/create", body={"name": "mnist"}),
        "reach the daemon's own API by the MLflow port": lambda: target.http("GET", "/v1/secrets", forged),
        "listen at the MLflow port": lambda: bind(target.port),
        "listen at the MLflow port by a shared address": lambda: bind(target.port, socket.SO_REUSEADDR),
        "listen at the MLflow port by a shared port": lambda: bind(target.port, socket.SO_REUSEADDR, socket.SO_REUSEPORT),
    }
    return found


def administering(target: Target) -> dict[str, Attempt]:
    """Endpoints serve every user of the machine; administrative requests are for their owner alone."""
    forged = f"Authorization: Bearer {token_of(b'x' * 32, TokenCaller('default', target.name))}"
    outcome = ("fairway-revision: 1", "fairway-outcome: clicked=1")
    root, artifacts = "/api/2.0/mlflow", "/api/2.0/mlflow-artifacts/artifacts"
    plan = b'put {"service": "default/chat", "backends": []}'
    return {
        "report an outcome without a token": lambda: target.at_endpoint("POST", "/fairway/outcome", *outcome),
        "report an outcome with a forged token": lambda: target.at_endpoint("POST", "/fairway/outcome", forged, *outcome),
        "report an outcome with an empty token": lambda: target.at_endpoint(
            "POST", "/fairway/outcome", "Authorization: Bearer ", *outcome
        ),
        "ask a replica for its load by the endpoint": lambda: target.at_endpoint("GET", "/fairway/load"),
        "ask for it by a path that is written otherwise": lambda: target.at_endpoint("GET", "/%66airway/load"),
        "give the router another plan by the endpoint": lambda: target.command_router(plan),
        "ask the router for its counts by the endpoint": lambda: target.command_router(b"look"),
        "take the router's listener by the endpoint": lambda: target.command_router(b"listener"),
        "listen at the endpoint": lambda: bind(target.endpoint, socket.SO_REUSEADDR, socket.SO_REUSEPORT),
        "listen at the port of a replica": lambda: bind(target.replica, socket.SO_REUSEADDR),
        "list experiments without a token": lambda: target.http("GET", f"{root}/experiments/search?max_results=1"),
        "read an artifact without a token": lambda: target.http("GET", f"{artifacts}?path=model"),
        "write an artifact without a token": lambda: target.http("PUT", f"{artifacts}/model/weights.bin"),
        "end a run without a token": lambda: target.http("POST", f"{root}/runs/update", body={"run_id": target.name}),
    }


def changing(target: Target) -> dict[str, Attempt]:
    home = target.home.path
    found: dict[str, Attempt] = {
        "rename the home": lambda: os.rename(home, home.with_name("gone")),
        "open the home to all": lambda: home.chmod(0o777),
        "write a record into a run": lambda: (target.attempt / "exit.json").write_text('{"code": 0}'),
        "ask a task to stop by its file": lambda: (target.attempt / "stop").write_text("now"),
        "change the code of a run in place": lambda: (target.home.work / "task.py").write_text("raise SystemExit"),
        "remove a device's lock": target.claim.unlink,
        "lock a device's lock": lambda: lock(target.claim),
        "lock the ports": lambda: lock(target.locks / "ports"),
        "put a lock into the folder of another user": lambda: os.mkfifo(target.locks / "device-GPU-1@aa"),
        "rename the folder of another user's locks": lambda: os.rename(target.locks, target.locks.with_name("gone")),
    }
    for name, pid in (("a task", target.task), ("a supervisor", target.supervisor), ("the daemon", target.daemon)):
        found[f"end {name}"] = lambda pid=pid: os.kill(pid, signal.SIGKILL)
        found[f"halt {name}"] = lambda pid=pid: os.kill(pid, signal.SIGSTOP)
    return found


@needs_root
def test_a_second_user_is_refused_everything(victim: DaemonHome) -> None:
    target = Target(victim)
    attempts = reading(target) | speaking(target) | administering(target) | changing(target)
    assert len(attempts) >= 54
    before = victim.get(target.name)

    def attack() -> None:
        done = []
        for what, attempt in attempts.items():
            try:
                attempt()
            except REFUSED:
                continue
            done.append(what)
        assert done == []

    do_as(STRANGER, attack)
    after = victim.get(target.name)
    assert after["phase"] == "Running"
    assert [task["started"] for task in after["tasks"]] == [task["started"] for task in before["tasks"]]
    (victim.marks / "end").touch()
    victim.until_phase(target.name, "Succeeded")


def plant(public: Path, uuids: list[str]) -> None:
    """Create everything that a second user can leave where this version, or an earlier one, expects locks and sockets."""
    shared = public / "machine"
    shared.mkdir()
    shared.chmod(0o1777)
    os.mkfifo(shared / "ports")
    for uuid in uuids:
        os.mkfifo(shared / f"device-{uuid}")
    (public / "machine-0").symlink_to("/")
    own = public / f"machine-{STRANGER}"
    own.mkdir()
    os.mkfifo(own / "ports")
    for number, uuid in enumerate(uuids):
        os.mkfifo(own / f"device-{uuid}@{number}")
    for number in range(300):
        (public / f"machine-{STRANGER}-{number:08x}").mkdir()


@needs_root
def test_what_a_second_user_leaves_behind_delays_nothing_and_is_told(victim: DaemonHome, public: Path) -> None:
    uuids = [device["uuid"] for device in json.loads(victim.ask("top", "node", "-o", "json"))["nodes"][0]["devices"]]
    victim.ask("daemon", "stop")
    for path in public.glob("machine*"):
        for inner in path.iterdir():
            inner.unlink()
        path.rmdir()

    def act() -> None:
        plant(public, uuids)
        # It also locks every port that it can name.
        descriptor = os.open(public / f"machine-{STRANGER}" / "ports-0", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))

    with acting_as(STRANGER, act):
        began = time.monotonic()
        name = victim.submit(victim.document("work", 2, role={"resources": {"gpu": 1}}))
        victim.until_phase(name, "Running")
        assert time.monotonic() - began < 25
        told = json.loads(victim.call("doctor", "-o", "json").stdout)["findings"]
        warned = [finding["text"] for finding in told if finding["name"] == "machine"]
        assert any(f"device-{uuids[0]}" in text for text in warned), told
        assert any("machine-0 is ignored" in text for text in warned), warned
        assert "is ignored" in victim.log
        victim.tell(name)
        victim.until_phase(name, "Succeeded")


@needs_root
def test_a_device_that_a_second_user_claims_is_named_by_who_holds_it(victim: DaemonHome, public: Path) -> None:
    uuids = [device["uuid"] for device in json.loads(victim.ask("top", "node", "-o", "json"))["nodes"][0]["devices"]]

    def claim() -> None:
        own = public / f"machine-{STRANGER}"
        own.mkdir()
        descriptor = os.open(own / f"device-{uuids[0]}@aa", os.O_RDWR | os.O_CREAT, 0o644)
        os.write(descriptor, json.dumps({"home": "anything", "user": "root", "shared": True}).encode())
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))

    with acting_as(STRANGER, claim):
        name = victim.submit(victim.document("work", 1, role={"resources": {"gpu": 1}}))
        victim.until_phase(name, "Running")
        (device,) = victim.get(name)["tasks"][0]["devices"]
        assert device != uuids[0], "the other one is free"
        shown = json.loads(victim.ask("top", "node", "-o", "json"))["nodes"][0]["devices"]
        assert "another fairway home of user" in shown[0]["busy_with"]
        assert "root" not in shown[0]["busy_with"]
        victim.tell(name)
        victim.until_phase(name, "Succeeded")
