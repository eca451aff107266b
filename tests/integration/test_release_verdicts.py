"""Twelve releases with real routers, replicas and clients: a bad version is rolled back for its reason, a good one is promoted.

CI runs some; `make soak` runs all of them, and prints the result of each.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from daemon_home import DaemonHome
from onnx import TensorProto, helper, numpy_helper

SERVER = """
import json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
mode = sys.argv[1]
held, asked = [], [0]
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_GET(self):
        self.answer(200, b"{}")
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        asked[0] += 1
        if mode == "crash" and asked[0] >= 10:
            print("the model is gone", flush=True)
            os._exit(3)
        if mode == "slow":
            time.sleep(0.12)
        if mode == "leak":
            held.append(bytearray(os.urandom(1) * 120_000))
        failed = mode == "errors" and asked[0] % 4 == 0
        output = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0.25, 0.75]}
        self.answer(500 if failed else 200, json.dumps({"model_name": "m", "outputs": [output]}).encode())
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(("127.0.0.1", int(os.environ["FAIRWAY_PORT"])), Handler).serve_forever()
"""
CLASSES = 5
CLIENTS = 4


def write_digits(
    path: Path, *, name: str = "x", sign: float = 1.0, lost: int | None = None, power: float = 1.0, noise: float = 0.0
) -> Path:
    """Write scores of five classes for eight numbers. A `power` with a fraction of a negative number has no value: NaN."""
    chance = np.random.default_rng(7)
    weights = sign * chance.normal(0.0, 1.0, (8, CLASSES)) + np.random.default_rng(8).normal(0.0, noise, (8, CLASSES))
    bias = np.zeros(CLASSES)
    if lost is not None:
        bias[lost] = -100.0
    tensors = [
        numpy_helper.from_array(array.astype(np.float32), label)
        for label, array in (("w", weights), ("b", bias), ("p", np.array(power)))
    ]
    nodes = [
        helper.make_node("MatMul", [name, "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Pow", ["a", "p"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    ends = [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["n", size]) for each, size in ((name, 8), ("y", CLASSES))]
    graph = helper.make_graph(nodes, "digits", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return path


def right_class(data: list[float]) -> int:
    """Return the prediction of the first version."""
    weights = np.random.default_rng(7).normal(0.0, 1.0, (8, CLASSES))
    return int((np.array(data) @ weights).argmax())


@dataclass(frozen=True)
class Case:
    """One release."""

    name: str
    strategy: str
    guard: str
    """The guard that must roll it back; empty: it must be promoted."""
    words: str = ""
    """Words that its reason must contain."""
    model: dict[str, Any] = field(default_factory=dict)
    """How the second version's model differs, for a service of a model."""
    mode: str = ""
    """What the second version's server does, for a service of a command."""
    rules: dict[str, Any] = field(default_factory=dict)
    """Guards of the document."""
    seconds: int = 6
    """The duration of the first step."""
    reports: bool = False
    """Whether clients report the quality of responses."""


CLASSES_ONLY = {"outputs": {"differ": "100%", "classes": "5%"}}
METRIC = {"metric": {"name": "right"}}
CASES = (
    Case("renamed input", "canary", "client_errors", "client errors (4xx)", {"name": "image"}),
    Case("NaN", "canary", "non_finite", "NaN or infinity in an output", {"power": 1.5}),
    Case("wrong sign", "shadow", "outputs", "differ from r1's to the same requests", {"sign": -1.0}, rules={"outputs": "1%"}),
    Case("missing class", "shadow", "outputs", "name another class", {"lost": 2}, rules=CLASSES_ONLY),
    Case("wrong sign, reported", "ab", "metric", "higher is better", {"sign": -1.0}, rules=METRIC, reports=True),
    Case("server errors", "canary", "errors", "answers failed", mode="errors"),
    Case("slow", "canary", "slower", "times as much", mode="slow", seconds=60),
    Case("crash", "canary", "crash", "ended by themselves", mode="crash", seconds=60),
    Case("leak", "canary", "leak", "does not level off", mode="leak", seconds=240),
    Case("good", "canary", "", model={"noise": 1e-7}),
    Case("good, compared", "shadow", "", model={"noise": 1e-7}, rules={"outputs": "1%"}),
    Case("good, reported", "ab", "", model={"noise": 1e-7}, rules=METRIC, reports=True),
)
SAMPLE = ("NaN", "wrong sign", "missing class")


class Clients:
    """Clients that send requests continuously, each on its own connection, and report outcomes if required."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,), daemon=True) for number in range(CLIENTS)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self, number: int) -> None:
        chance = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self._over.is_set():
            data = [chance.gauss(0.0, 1.0) for _ in range(8)]
            body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 8], "data": data}]}
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("POST", "/v2/models/m/infer", json.dumps(body), {"content-type": "application/json"})
                answer = connection.getresponse()
                told = answer.read()
                if self._token and answer.status == 200:
                    scores = json.loads(told)["outputs"][0]["data"]
                    is_right = int(np.argmax(scores)) == right_class(data)
                    head = {
                        "authorization": f"Bearer {self._token}",
                        "fairway-revision": answer.headers["fairway-revision"],
                        "fairway-outcome": f"right={int(is_right)}",
                    }
                    connection.request("POST", "/fairway/outcome", b"", head)
                    connection.getresponse().read()
            self._over.wait(0.02)
        connection.close()


def document(case: Case, number: int) -> dict[str, Any]:
    steps = [{"to": "30%", "for": f"{case.seconds}s"}]
    steps += [] if case.strategy == "ab" else [{"to": "60%", "for": "5s"}]
    rollout = {"strategy": case.strategy, "steps": steps, "guard": case.rules, "requests": 50}
    what: dict[str, Any] = {"model": f"m@{number}", "resources": {"memory": "300Mi"}}
    if case.mode:
        what = {"command": ["python", "server.py", case.mode if number == 2 else "good"], "code": ".", "ready": "/"}
        what["limits"] = {"memory": "400Mi"}
        what["resources"] = {"cpu": "500m"}
    given = {"kind": "ModelService", "name": "m", "replicas": 1, "rollout": rollout, **what}
    if case.model.get("name"):
        rollout["allow_signature_change"] = True
    return given


def verdict_of(home: DaemonHome, case: Case) -> dict[str, Any]:
    """Release the second version under load; return the release when it has ended."""
    if case.mode:
        (home.work / "server.py").write_text(SERVER)
    else:
        for number, more in ((1, {}), (2, case.model)):
            home.ask("model", "register", "m", str(write_digits(home.work / f"m{number}.onnx", **more)))

    def service() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(home.persist("get", "service/m", "-o", "json"))
        return found

    home.ask("apply", home.write(document(case, 1)))
    found = home.until(lambda: (one := service())["phase"] == "Ready" and one["url"] and one, "the first version", within=90)
    with Clients(int(found["url"].rpartition(":")[2]), found["outcome_token"] if case.reports else ""):
        time.sleep(0)
        home.ask("apply", home.write(document(case, 2)))

        def over() -> dict[str, Any] | None:
            release: dict[str, Any] = json.loads(home.persist("rollout", "status", "m", "-o", "json"))
            return release if release["phase"] in ("Done", "RolledBack") and release["target"] == 2 else None

        return home.until(over, f"the end of {case.name}", within=case.seconds + 240)


def problem_of(release: dict[str, Any], case: Case) -> str:
    if not case.guard:
        return "" if release["phase"] == "Done" else f"{release['phase']}: {release['reason']}"
    if release["phase"] != "RolledBack" or not release["reason"].startswith(f"{case.guard}: "):
        return f"{release['phase']}: {release['reason']}"
    return "" if case.words in release["reason"] else release["reason"]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_broken_version_goes_back_for_the_right_reason(home: DaemonHome, name: str) -> None:
    case = next(each for each in CASES if each.name == name)
    assert problem_of(verdict_of(home, case), case) == ""


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_twelve_releases_have_twelve_right_verdicts(make_home: Any) -> None:
    right = 0
    for number, case in enumerate(CASES):
        home = make_home(f"home{number}")
        began = time.monotonic()
        release = verdict_of(home, case)
        problem = problem_of(release, case)
        right += not problem
        said = f"wrong: {problem}" if problem else release["reason"]
        print(f"{case.name:22} {case.strategy:8} {math.ceil(time.monotonic() - began):4d} s  {said}")
        home.ask("delete", "service/m")
        home.close()
    assert right == len(CASES) == 12
