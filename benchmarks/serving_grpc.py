"""ModelInfer over gRPC beside binary HTTP of the same replica, directly and through the router, and beside MLServer's gRPC.

`python serving_grpc.py [ROUNDS] [SECONDS]`. The load is `grpc_load/` (Go): 16 connections, each with one request at a time.
MLServer runs from the interpreter in FAIRWAY_MLSERVER (an environment with mlserver and onnxruntime); without it its row is
omitted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import serving_models
from serving import free_port, replica_command, running

from fairway.serving.replica.protocols.grpc.proto_definition import definitions

HERE = Path(__file__).parent
CONNECTIONS = 16
INFER = "/inference.GRPCInferenceService/ModelInfer"
ROUTER = """
import asyncio, sys, uvloop
from fairway.serving.router.http1_client import Http1ClientConnection
from fairway.serving.router.routing.router_state import RouterState, RouterLimits
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan
async def main():
    desk = RouterState("e", RouterLimits(), lambda: None)
    desk.put(RoutePlan("a/b", (RouteBackend("a", 1, "127.0.0.1:" + sys.argv[1]),), ((1, WHOLE),)))
    server = await asyncio.get_running_loop().create_server(lambda: Http1ClientConnection(desk), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(1e9)
uvloop.run(main())
"""
PEER = """
import os
import numpy as np, onnxruntime
from mlserver import MLModel, types
class Lenet(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["BARE_MODEL"], options)
        return True
    async def predict(self, payload):
        tensor = payload.inputs[0]
        data = tensor.data.root
        raw = data[0] if isinstance(data, list) and isinstance(data[0], (bytes, memoryview)) else data
        x = np.frombuffer(raw, "f4") if isinstance(raw, (bytes, memoryview)) else np.array(raw, "f4")
        y = self.session.run(None, {"x": x.reshape(tensor.shape)})[0]
        output = types.ResponseOutput(name="y", shape=list(y.shape), datatype="FP32", data=y.ravel().tolist())
        return types.InferenceResponse(model_name=self.name, outputs=[output])
"""


def message(x: np.ndarray) -> bytes:
    """Return a ModelInferRequest with raw contents."""
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape}
    request = {"model_name": "m", "inputs": [tensor], "raw_input_contents": [x.tobytes()]}
    return definitions().schema.encode("inference.ModelInferRequest", request)


def over_http(x: np.ndarray) -> bytes:
    """Return the same as an HTTP request with a binary tensor."""
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = (
        f"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: {len(head)}\r\n"
        f"Content-Length: {len(head) + x.nbytes}\r\n\r\n"
    )
    return lines.encode() + head + x.tobytes()


def load(program: Path, kind: str, port: int, seconds: float, body: bytes) -> float:
    """Return requests per second."""
    command = [str(program), kind, f"127.0.0.1:{port}", INFER, str(CONNECTIONS), str(seconds)]
    found = json.loads(subprocess.run(command, input=body, stdout=subprocess.PIPE, check=True).stdout)
    if found["failed"]:
        sys.exit(f"{kind} on port {port}: {found['failed']} requests failed")
    return found["requests"] / found["seconds"]


@contextmanager
def router(port: int) -> Iterator[int]:
    """Run a router in front of a replica."""
    process = subprocess.Popen([sys.executable, "-c", ROUTER, str(port)], stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


@contextmanager
def mlserver(python: str, folder: Path, place: Path) -> Iterator[int]:
    """Run MLServer with the same model, in one process, as it is by default for one core."""
    http, grpc, metrics = free_port(), free_port(), free_port()
    place.mkdir()
    (place / "lenet_model.py").write_text(PEER)
    settings = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics, "parallel_workers": 0, "debug": False}
    (place / "settings.json").write_text(json.dumps(settings))
    (place / "model-settings.json").write_text(json.dumps({"name": "m", "implementation": "lenet_model.Lenet"}))
    command = [str(Path(python).parent / "mlserver"), "start", str(place)]
    with running(command, http, BARE_MODEL=str(folder / "model.onnx")):
        yield grpc


def tell(what: str, rounds: list[dict[str, float]], one: str, other: str, bound: float) -> None:
    """Print the median ratio of a pair, measured round by round."""
    ratio = statistics.median(each[one] / each[other] for each in rounds)
    about = {name: round(statistics.median(each[name] for each in rounds)) for name in (one, other)}
    print(json.dumps({"what": what, "ratio": round(ratio, 2), "must_reach": bound, "requests_a_second": about}), flush=True)


def main() -> None:
    """Print all rows."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    x = np.random.default_rng(0).random((1, 1, 28, 28), dtype="f4")
    bodies = {"grpc": message(x), "http": over_http(x)}
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        program = Path(place) / "grpc_load"
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE / "grpc_load", check=True)
        folder = serving_models.write("lenet", Path(place))
        port = free_port()
        stack.enter_context(running(replica_command(folder, port), port))
        ways = {"grpc": ("grpc", port), "http": ("http", port)}
        routed = stack.enter_context(router(port))
        ways |= {"grpc, router": ("grpc", routed), "http, router": ("http", routed)}
        peer = os.environ.get("FAIRWAY_MLSERVER", "")
        if peer:
            ways["mlserver"] = ("grpc", stack.enter_context(mlserver(peer, folder, Path(place) / "peer")))
        for kind, at in ways.values():
            load(program, kind, at, 0.5, bodies[kind])
        found = [
            {name: load(program, kind, at, seconds, bodies[kind]) for name, (kind, at) in ways.items()} for _ in range(rounds)
        ]
    tell("LeNet-5, 16 connections: gRPC / HTTP binary", found, "grpc", "http", 0.5)
    tell("the same through the router", found, "grpc, router", "http, router", 0.5)
    if peer:
        tell("gRPC / MLServer's gRPC", found, "grpc", "mlserver", 2.0)


if __name__ == "__main__":
    main()
