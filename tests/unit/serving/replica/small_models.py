"""Small ONNX models, and a client that talks ASGI to an application."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fairway.serving.replica.batching.batcher import Batcher, BatchLimits
from fairway.serving.replica.http.application import ReplicaApplication
from fairway.serving.replica.http.request_body import BodyLimits
from fairway.serving.replica.model.served_model import ServedModel
from fairway.serving.replica.runtimes.runtime import takes_batches
from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics
from fairway.state.model import ModelSignature, TensorSpec
from fairway.state.serving.batching_verdict import BatchingBasis, BatchingVerdict

DECLARED = BatchingVerdict(True, BatchingBasis.DECLARED, "by the test")


def save(folder: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], tensors: tuple[Any, ...] = ()) -> Path:
    graph = helper.make_graph(nodes, "small", inputs, outputs, list(tensors))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def doubler(folder: Path) -> Path:
    """Save a model: `y = 2 x`, rows of three."""
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    return save(folder, [helper.make_node("Mul", ["x", "two"], ["y"])], [x], [y], (two,))


def lookup(folder: Path) -> Path:
    """Save a model: `y = table[i]`; an index out of range is an error of the model."""
    table = numpy_helper.from_array(np.arange(5, dtype=np.float32), "table")
    i = helper.make_tensor_value_info("i", TensorProto.INT64, ["n", 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    return save(folder, [helper.make_node("Gather", ["table", "i"], ["y"])], [i], [y], (table,))


class Told:
    """A runtime defined by the test: `work` takes arrays and returns arrays."""

    platform = "told"
    quick = True

    def __init__(self, signature: ModelSignature, work: Callable[[list[Any]], list[Any]]) -> None:
        self.signature = signature
        self.batches = takes_batches(signature)
        self.work = work
        self.sizes: list[int] = []

    def run(self, inputs: list[Any]) -> list[Any]:
        self.sizes.append(len(inputs[0]) if inputs[0].ndim else 1)
        return self.work(inputs)

    def close(self) -> None:
        pass


def signature(**tensors: tuple[str, list[int]]) -> ModelSignature:
    """Return a signature: in `signature(x=("FP32", [-1, 3]), out_y=("FP32", [-1]))`, names that begin with `out_` are outputs."""
    inputs = tuple(TensorSpec(name, word, tuple(shape)) for name, (word, shape) in tensors.items() if not name.startswith("out_"))
    outputs = tuple(
        TensorSpec(name[4:], word, tuple(shape)) for name, (word, shape) in tensors.items() if name.startswith("out_")
    )
    return ModelSignature(inputs, outputs)


def served(of: ModelSignature, **more: Any) -> ServedModel:
    return ServedModel("m", "7", "told", of, takes_batches(of), **more)


def app_of(
    runtime: Any, limits: BatchLimits = BatchLimits(), bodies: BodyLimits = BodyLimits(), **more: Any
) -> ReplicaApplication:
    metrics = ReplicaMetrics()
    model = ServedModel("m", "7", runtime.platform, runtime.signature, runtime.batches, **more)
    return ReplicaApplication(model, Batcher(runtime, limits, metrics, DECLARED), metrics, bodies, time.monotonic)


async def ask(
    app: ReplicaApplication, method: str, path: str, body: Any = b"", headers: dict[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    """Send a request; return its status, its JSON or bytes, and its headers."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"type": "http", "method": method, "path": path, "headers": [*given, (b"content-length", b"%d" % len(sent))]}
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": sent, "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start, *rest = messages
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    data: Any = b"".join(message.get("body", b"") for message in rest)
    if found["content-type"] == "application/json" and data and "content-encoding" not in found:
        data = json.loads(data)
    return start["status"], data, found
