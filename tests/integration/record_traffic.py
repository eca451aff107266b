"""Records traffic for the simulated releases: `python tests/integration/record_traffic.py [SECONDS]`, some minutes on loopback.

A daemon, a router and two replicas of a small ONNX model, as users have them, and clients whose number follows bursts and a slow
wave; a few of them send inputs that the model refuses. Every half second is one line of the recording: the number of requests,
how many of them were refused, and the latencies of the others in hundredths of a millisecond. The result is checked in as
`tests/unit/plan/service/recorded_traffic.json`; the tests replay it on a virtual clock.
"""

from __future__ import annotations

import http.client
import json
import math
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from daemon_home import DaemonHome
from onnx import TensorProto, helper, numpy_helper

TICK = 0.5
KEPT = 24
"""Latencies of one tick that are kept."""
TARGET = Path(__file__).parent.parent / "unit" / "plan" / "service" / "recorded_traffic.json"
SEED = 16


def write_classifier(path: Path, width: int = 256) -> Path:
    """Write two layers with random weights: 64 numbers in, scores of 10 classes out."""
    chance = np.random.default_rng(SEED)
    weights = [
        numpy_helper.from_array(chance.normal(0, 1 / math.sqrt(rows), (rows, columns)).astype(np.float32), name)
        for name, rows, columns in (("a", 64, width), ("b", width, 10))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 64), ("y", 10))]
    graph = helper.make_graph(nodes, "classifier", tensors[:1], tensors[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return path


class Recorder:
    """Sends requests at a varying rate, and records the result of each."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self._seconds = seconds
        self._ticks: list[tuple[list[float], list[int]]] = [([], []) for _ in range(int(seconds / TICK))]
        self._began = 0.0
        self._lock = threading.Lock()

    def run(self, threads: int = 12) -> list[list[object]]:
        self._began = time.perf_counter()
        working = [threading.Thread(target=self._work, args=(random.Random(SEED + number),)) for number in range(threads)]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()
        chance = random.Random(SEED)
        lines: list[list[object]] = []
        for took, refused in self._ticks:
            kept = sorted(chance.sample(took, KEPT) if len(took) > KEPT else took)
            lines.append([len(took) + len(refused), len(refused), [round(seconds * 1e5) for seconds in kept]])
        return lines

    def _rate(self, now: float) -> float:
        """Return the requests per second of one client: a wave of a minute, bursts of four seconds, and pauses."""
        wave = 1.0 + 0.5 * math.sin(2.0 * math.pi * now / 60.0)
        burst = 4.0 if now % 37.0 < 4.0 else 1.0
        return 5.0 * wave * burst * (0.1 if now % 53.0 < 3.0 else 1.0)

    def _work(self, chance: random.Random) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        due = 0.0
        while (now := time.perf_counter() - self._began) < self._seconds:
            due = max(due, now - 1.0) + chance.expovariate(self._rate(now))
            time.sleep(max(0.0, due - now))
            name = "wrong" if chance.random() < 0.04 else "x"
            data = [chance.gauss(0, 1) for _ in range(64)]
            body = json.dumps({"inputs": [{"name": name, "datatype": "FP32", "shape": [1, 64], "data": data}]})
            began = time.perf_counter()
            connection.request("POST", "/v2/models/digits/infer", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            ended = time.perf_counter()
            place = int((ended - self._began) / TICK)
            if place < len(self._ticks):
                with self._lock:
                    took, refused = self._ticks[place]
                    if answer.status == 200:
                        took.append(ended - began)
                    else:
                        refused.append(answer.status)
        connection.close()


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = DaemonHome(Path(folder))
        try:
            home.ask("model", "register", "digits", str(write_classifier(home.work / "digits.onnx")))
            document = {"kind": "ModelService", "name": "digits", "model": "digits@1", "replicas": 2}
            home.ask("apply", home.write(document))

            def ready() -> dict[str, Any] | None:
                found: dict[str, Any] = json.loads(home.persist("get", "service/digits", "-o", "json"))
                return found if found["ready_replicas"] == 2 and found["url"] else None

            port = int(home.until(ready, "two replicas")["url"].rpartition(":")[2])
            lines = Recorder(port, seconds).run()
        finally:
            home.close()
    text = ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    TARGET.write_text(f'{{"tick": {TICK}, "unit": 1e-05, "ticks": [\n{text}\n]}}\n')
    print(f"{TARGET}: {len(lines)} ticks, {sum(int(str(line[0])) for line in lines)} requests")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 180.0)
