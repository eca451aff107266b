"""Default batching changes no prediction: concurrent clients get what each would get alone, and safe models are still batched."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from replica_process import ReplicaProcess, answer_of, replica

CLIENTS, EACH = 8, 100
Tensors = tuple[Any, ...]
NODES: dict[str, tuple[list[Any], Tensors]] = {
    "cumulative sum": (
        [helper.make_node("CumSum", ["x", "axis"], ["y"])],
        (numpy_helper.from_array(np.array(0, np.int64), "axis"),),
    ),
    "batch mean": (
        [helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1), helper.make_node("Sub", ["x", "mean"], ["y"])],
        (),
    ),
    "doubled": (
        [helper.make_node("Mul", ["x", "two"], ["y"])],
        (numpy_helper.from_array(np.array(2, np.float32), "two"),),
    ),
}


def expected(name: str, rows: Any) -> Any:
    return {"cumulative sum": np.cumsum(rows, axis=0), "batch mean": rows - rows.mean(axis=0), "doubled": 2 * rows}[name]


def saved(name: str, folder: Path) -> Path:
    nodes, tensors = NODES[name]
    tensor = [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["n", 3]) for each in ("x", "y")]
    graph = helper.make_graph(nodes, "m", tensor[:1], tensor[1:], list(tensors))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, folder / "model.onnx")
    return folder


class Asking:
    """Concurrent clients; each request has one to three rows of its own numbers."""

    def __init__(self, served: ReplicaProcess, name: str) -> None:
        self._served = served
        self._name = name
        self.answered = self.wrong = 0
        self._lock = threading.Lock()
        self._begin = threading.Barrier(CLIENTS)
        clients = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    def _ask(self, client: int) -> None:
        wire = self._served.connection()
        self._begin.wait(30)
        for number in range(EACH):
            rows = (np.arange(3 * (1 + number % 3), dtype=np.float32) + 1000 * client + number).reshape(-1, 3)
            body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": list(rows.shape), "data": rows.ravel().tolist()}]}
            wire.request("POST", "/v2/models/m/infer", json.dumps(body).encode())
            status, answer, _ = answer_of(wire.getresponse())
            right = status == 200 and np.allclose(answer["outputs"][0]["data"], expected(self._name, rows).ravel(), rtol=1e-4)
            with self._lock:
                self.answered += 1
                self.wrong += not right
        wire.close()


@pytest.mark.parametrize("name", ["cumulative sum", "batch mean"])
def test_a_model_that_mixes_rows_gives_no_wrong_answer(name: str, tmp_path: Path) -> None:
    with replica(saved(name, tmp_path), "--name", "m") as served:
        asking = Asking(served, name)
        load = served.ask("GET", "/fairway/load")[1]
        words = served.ask("GET", "/v2/models/m")[1]["parameters"]["batching"]
        metrics = served.ask("GET", "/metrics")[1].decode()
    assert (asking.answered, asking.wrong) == (800, 0)
    assert (load["batching"]["batched"], load["batching"]["basis"]) == (False, "mixed")
    assert load["batches"] == 800
    assert words.startswith("not batched (mixed): output 'y'")
    assert 'fairway_batching{model="m",version="1",basis="mixed"} 0' in metrics
    assert any(line.startswith("not batched (mixed)") for line in served.words)


def test_a_model_that_does_not_is_still_batched(tmp_path: Path) -> None:
    with replica(saved("doubled", tmp_path), "--name", "m") as served:
        asking = Asking(served, "doubled")
        load = served.ask("GET", "/fairway/load")[1]
    assert (asking.answered, asking.wrong) == (800, 0)
    assert (load["batching"]["batched"], load["batching"]["basis"], load["batching"]["rows"]) == (True, "proven", 64)
    assert load["batches"] < 800, "some requests ran together"


def test_what_is_declared_needs_no_proof(tmp_path: Path) -> None:
    folder = saved("doubled", tmp_path)
    with replica(folder, "--name", "m", "--batching", "never") as served:
        found = served.ask("GET", "/fairway/load")[1]["batching"]
        assert (found["batched"], found["basis"]) == (False, "declared")
    (folder / "fairway.json").write_text('{"batching": "never"}')
    with replica(folder, "--name", "m") as served:
        assert str(served.ask("GET", "/v2/models/m")[1]["parameters"]["batching"]) == "not batched (declared): by fairway.json"
    with replica(folder, "--name", "m", "--batching", "always") as served:
        found = served.ask("GET", "/fairway/load")[1]["batching"]
        assert (found["batched"], found["basis"]) == (True, "declared")
