"""A live service during two minutes of faults: failed requests; and the first response of a service at zero against a cold start.

Releases, scaling, restarts of the daemon and the router, `kill -9` of replicas, under continuous load. A request in flight when a
router or a replica was killed may be lost, since a POST is not safe to send again; so may the first one on a connection that a
killed router had held open. No other request may be lost. Every failure is compared with the times of the kills. The number of
seconds is an optional argument.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
from bench import FAIRWAY, fresh_home, tell
from onnx import TensorProto, helper

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
ASKERS = 4
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [10, 20]}]})
COLD_STARTS = 20


def main() -> None:
    """Measure both."""
    with fresh_home() as environment, tempfile.TemporaryDirectory() as folder:
        house = House(environment, Path(folder))
        for number in (1, 2):
            house.call("model", "register", "adds", write_model(Path(folder, f"v{number}.onnx"), number))
        trouble(house)
        from_zero(house)


class House:
    """A home and its service."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environment = environment
        self.folder = folder
        self.kills: list[tuple[float, float]] = []
        """Start and end of each kill of a process that answers requests: it may answer until it has ended."""

    def call(self, *words: str) -> str:
        """Run the command line and return its output."""
        ended = subprocess.run(
            [FAIRWAY, *words], env=self.environment, capture_output=True, text=True, cwd=self.folder, check=False
        )
        if ended.returncode:
            message = f"fairway {' '.join(words)} ended with {ended.returncode}: {ended.stderr}"
            raise RuntimeError(message)
        return ended.stdout

    def service(self) -> dict[str, Any]:
        """Return the service as `fairway get` prints it."""
        found: dict[str, Any] = json.loads(self.call("get", "service/adds", "-o", "json"))
        return found

    def pids(self, *words: str) -> list[int]:
        """Return the processes of this home whose command line contains all of these words."""
        home, found = self.environment["FAIRWAY_HOME"], []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                text = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if all(word in text for word in words) and home in text + (place / "environ").read_bytes().decode(
                    errors="replace"
                ):
                    found.append(int(place.name))
            except OSError:
                continue
        return found

    def kill(self, *words: str) -> None:
        """Send SIGKILL to the first process whose command line contains all of these words."""
        found = self.pids(*words)
        for pid in found[:1]:
            handle = os.pidfd_open(pid)
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            select.select([handle], [], [], 10)
            if "fairway.serving" in words[0]:
                self.kills.append((began, time.monotonic()))
            os.close(handle)


class Asker(threading.Thread):
    """A client that sends requests continuously on one connection, and records the results."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.answers: Counter[float] = Counter()
        self.failures: list[tuple[float, float, float, str]] = []
        """Of each failed request: when its connection was last alive, when it was sent, when it failed, and how."""
        self.over = threading.Event()

    def run(self) -> None:
        """Send requests until stopped."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        alive = time.monotonic()
        while not self.over.is_set():
            asked = time.monotonic()
            try:
                status, data = ask(connection)
                if status == 200:
                    self.answers[json.loads(data)["outputs"][0]["data"][0]] += 1
                else:
                    self.failures.append((asked, asked, time.monotonic(), f"{status} {data[:200]!r}"))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append((alive, asked, time.monotonic(), repr(error)))
                connection.close()
            alive = time.monotonic()
            time.sleep(0.001)
        connection.close()


def ask(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    """Send one request and return status and body."""
    connection.request("POST", "/v2/models/adds/infer", BODY, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def trouble(house: House) -> None:
    """Cause faults for two minutes and count the failed requests."""
    house.call("serve", "adds@1", "--replicas", "1..3")
    askers = [Asker(int(house.service()["url"].rpartition(":")[2])) for _ in range(ASKERS)]
    for asker in askers:
        asker.start()
    until = time.monotonic() + SECONDS
    for number in itertools.count():
        if time.monotonic() > until:
            break
        _one_thing(house, number)
        time.sleep(1.5)
    for asker in askers:
        asker.over.set()
    for asker in askers:
        asker.join()
    failures = [failure for asker in askers for failure in asker.failures]
    under_way = [each for each in failures if any(each[1] <= gone and began <= each[2] for began, gone in house.kills)]
    stale = [
        each
        for each in failures
        if each not in under_way and any(each[0] <= gone and began <= each[2] for began, gone in house.kills)
    ]
    others = [each for each in failures if each not in under_way and each not in stale]
    for failure in others:
        print(failure, file=sys.stderr)
    tell(
        "requests that failed in two minutes of trouble, but those lost with a killed process",
        len(others),
        "0",
        met=not others,
        answered=sum(asker.answers.total() for asker in askers),
        lost_under_way=len(under_way),
        lost_with_their_connection=len(stale),
        kills=len(house.kills),
        versions=len({value for asker in askers for value in asker.answers}),
    )
    house.call("delete", "service/adds")


def _one_thing(house: House, number: int) -> None:
    """Cause the next fault, or send the next command."""
    what = number % 6
    if what == 0:
        house.call("scale", "adds", str(1 + number // 6 % 3))
    elif what == 1:
        house.call("rollout", "start", "adds", f"adds@{2 - number // 6 % 2}")
    elif what == 2:
        house.kill("fairway.bootstrap")
        house.call("list", "services")
    elif what == 3:
        house.kill("fairway.serving.router.process")
    elif what == 4:
        house.kill("fairway.serving.replica")
    else:
        house.call("daemon", "stop")
        house.call("list", "services")


def from_zero(house: House) -> None:
    """Measure the first response of a service at zero, against a replica started by hand until it responds."""
    document = {
        "kind": "ModelService",
        "name": "adds",
        "model": "adds@1",
        "replicas": {"min": 0, "max": 1},
        "scaling": {"idle": "1s"},
    }
    Path(house.folder, "service.json").write_text(json.dumps(document))
    house.call("apply", "-f", "service.json")
    first, cold = [], [_cold_start(house)]
    for _ in range(COLD_STARTS):
        while (found := house.service())["phase"] != "Idle":
            time.sleep(0.1)
        connection = http.client.HTTPConnection("127.0.0.1", int(found["url"].rpartition(":")[2]), timeout=60)
        began = time.perf_counter()
        status, data = ask(connection)
        first.append(time.perf_counter() - began)
        connection.close()
        if status != 200:
            message = f"the first request was answered {status}: {data!r}"
            raise RuntimeError(message)
        cold.append(_cold_start(house))
    # Each is compared with the cold starts just before and after it, because other programs slow all of them down.
    ratios = [2 * took / (before + after) for took, before, after in zip(first, cold, cold[1:], strict=False)]
    ratio = statistics.median(ratios)
    tell(
        "from zero: first answer / cold start of a replica",
        ratio,
        "<= 1.3",
        met=ratio <= 1.3,
        worst=round(max(ratios), 2),
        seconds=round(statistics.median(first), 3),
        cold_start=round(statistics.median(cold), 3),
    )
    house.call("delete", "service/adds")


def _cold_start(house: House) -> float:
    command = ["-m", "fairway.serving.replica", "--folder", str(house.folder), "--name", "adds", "--version", "1", "--port", "0"]
    only = Path(house.folder, "only")
    only.mkdir(exist_ok=True)
    Path(only, "model.onnx").write_bytes(Path(house.folder, "v1.onnx").read_bytes())
    command[3] = str(only)
    began = time.perf_counter()
    # In its own session, as a replica is: the kernel shares processors by session when other programs compete for them.
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "is served at" in line:
            break
    took = time.perf_counter() - began
    process.terminate()
    process.stderr.close()
    process.wait()
    return took


def write_model(path: Path, add: float) -> str:
    """Write a model that adds a number, so that its answers identify it."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["y"])],
        "adds",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor("c", TensorProto.FLOAT, [1], [add])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return str(path)


if __name__ == "__main__":
    main()
