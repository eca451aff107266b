"""Real clients of gRPC and WebSockets: tritonclient, grpcio's stubs, reflection; directly, and through a router."""

from __future__ import annotations

import asyncio
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures

import numpy as np
import pytest
from replica_process import ReplicaProcess

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
triton = pytest.importorskip("tritonclient.grpc", reason="tritonclient[grpc] is not installed")

ROUTER = """
import asyncio, sys, uvloop
from fairway.serving.router.http1_client import Http1ClientConnection
from fairway.serving.router.routing.router_state import RouterState, RouterLimits
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan
async def main():
    desk = RouterState("e", RouterLimits(), lambda: None)
    desk.put(RoutePlan("a/b", (RouteBackend("a", 1, sys.argv[1], sys.argv[2]),), ((1, WHOLE),)))
    server = await asyncio.get_running_loop().create_server(lambda: Http1ClientConnection(desk), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while True:
        await asyncio.sleep(1)
        desk.sweep()
uvloop.run(main())
"""


class RouterProcess:
    def __init__(self, backend: str, protocol: str = "") -> None:
        command = [sys.executable, "-c", ROUTER, backend, protocol]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


MODEL = """
class Model:
    signature = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}, {"name": "s", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}, {"name": "n", "datatype": "INT64", "shape": [-1]}],
    }

    def load(self, folder):
        pass

    def predict(self, inputs):
        import numpy as np

        if (inputs["x"] < 0).any():
            raise ValueError("no number may be negative")
        return {"y": 2 * inputs["x"], "n": np.array([len(each) for each in inputs["s"]], "i8")}
"""


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaProcess]:
    folder = tmp_path_factory.mktemp("model")
    (folder / "model.py").write_text(MODEL)
    made = ReplicaProcess(folder, "--name", "m", "--version", "7", "--label", "best", "--runtime", "python", "--port", "0")
    yield made
    made.end()


@pytest.fixture(scope="module", params=["replica", "router"])
def address(request: pytest.FixtureRequest, replica: ReplicaProcess) -> Iterator[str]:
    if request.param == "replica":
        yield f"127.0.0.1:{replica.port}"
        return
    router = RouterProcess(f"127.0.0.1:{replica.port}")
    yield f"127.0.0.1:{router.port}"
    router.end()


@pytest.fixture
def client(address: str) -> Iterator[object]:
    with triton.InferenceServerClient(address) as made:
        yield made


X = np.arange(6, dtype="f4").reshape(2, 3)
S = np.array([b"ab", b"cde"], object)


def tensors(x: np.ndarray = X, s: np.ndarray = S) -> list:
    found = [triton.InferInput("x", list(x.shape), "FP32"), triton.InferInput("s", list(s.shape), "BYTES")]
    found[0].set_data_from_numpy(x)
    found[1].set_data_from_numpy(s)
    return found


def check(result) -> None:
    assert np.array_equal(result.as_numpy("y"), 2 * X)
    assert result.as_numpy("n").tolist() == [2, 3]


def refused(call, code: str, *words: str) -> None:
    with pytest.raises(triton.InferenceServerException) as raised:
        call()
    assert code in str(raised.value.status())
    for word in words:
        assert word in raised.value.message()


def stream(client, asks: list[dict]) -> list[tuple]:
    """Return the responses and errors of requests in one stream."""
    got: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: got.put((result, error)))
    for ask in asks:
        client.async_stream_infer("m", tensors(), **ask)
    found = [got.get(timeout=20.0) for _ in asks]
    client.stop_stream()
    return found


def soon(client, **more) -> object:
    got: queue.Queue = queue.Queue()
    client.async_infer("m", tensors(), lambda result, error: got.put(result or error), **more)
    return got.get(timeout=20.0)


def as_json(found: object) -> None:
    assert isinstance(found, dict)


# One case for each public method and documented option of tritonclient.grpc.InferenceServerClient.
CASES = {
    "is_server_live": lambda c: c.is_server_live() or pytest.fail("not live"),
    "is_server_live.headers": lambda c: c.is_server_live(headers={"x-a": "1"}) or pytest.fail("not live"),
    "is_server_live.client_timeout": lambda c: c.is_server_live(client_timeout=20) or pytest.fail("not live"),
    "is_server_ready": lambda c: c.is_server_ready() or pytest.fail("not ready"),
    "is_model_ready": lambda c: c.is_model_ready("m") or pytest.fail("not ready"),
    "is_model_ready.model_version": lambda c: c.is_model_ready("m", "7") or pytest.fail("not ready"),
    "is_model_ready, another": lambda c: c.is_model_ready("other") and pytest.fail("ready"),
    "is_model_ready, another version": lambda c: c.is_model_ready("m", "8") and pytest.fail("ready"),
    "get_server_metadata": lambda c: c.get_server_metadata().name == "fairway" or pytest.fail("name"),
    "get_server_metadata.as_json": lambda c: as_json(c.get_server_metadata(as_json=True)),
    "get_model_metadata": lambda c: list(c.get_model_metadata("m").inputs[0].shape) == [-1, 3] or pytest.fail("shape"),
    "get_model_metadata.model_version": lambda c: c.get_model_metadata("m", "7"),
    "get_model_metadata, another": lambda c: refused(lambda: c.get_model_metadata("z"), "NOT_FOUND", "no model 'z'"),
    "get_model_config": lambda c: c.get_model_config("m").config.input[0].name == "x" or pytest.fail("config"),
    "get_model_config.as_json": lambda c: as_json(c.get_model_config("m", as_json=True)),
    "get_model_repository_index": lambda c: c.get_model_repository_index().models[0].state == "READY" or pytest.fail("state"),
    "load_model": lambda c: c.load_model("m"),
    "load_model, another": lambda c: refused(lambda: c.load_model("z"), "NOT_FOUND"),
    "load_model.config": lambda c: refused(lambda: c.load_model("m", config="{}"), "INVALID_ARGUMENT", "rollout"),
    "load_model.files": lambda c: refused(
        lambda: c.load_model("m", config="{}", files={"file:1/a": b"x"}), "INVALID_ARGUMENT", "rollout"
    ),
    "unload_model": lambda c: refused(lambda: c.unload_model("m"), "INVALID_ARGUMENT", "fairway delete"),
    "unload_model.unload_dependents": lambda c: refused(lambda: c.unload_model("m", unload_dependents=True), "INVALID_ARGUMENT"),
    "get_inference_statistics": lambda c: c.get_inference_statistics("m").model_stats[0].name == "m" or pytest.fail("name"),
    "get_inference_statistics.all": lambda c: c.get_inference_statistics(),
    "get_trace_settings": lambda c: c.get_trace_settings(),
    "get_trace_settings.model_name": lambda c: c.get_trace_settings("m"),
    "update_trace_settings": lambda c: refused(
        lambda: c.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}), "UNIMPLEMENTED"
    ),
    "get_log_settings": lambda c: c.get_log_settings(),
    "update_log_settings": lambda c: refused(lambda: c.update_log_settings({"log_verbose_level": 2}), "UNIMPLEMENTED"),
    "get_system_shared_memory_status": lambda c: c.get_system_shared_memory_status(),
    "register_system_shared_memory": lambda c: refused(
        lambda: c.register_system_shared_memory("r", "/k", 8), "UNIMPLEMENTED", "shared memory"
    ),
    "unregister_system_shared_memory": lambda c: c.unregister_system_shared_memory(),
    "get_cuda_shared_memory_status": lambda c: c.get_cuda_shared_memory_status(),
    "register_cuda_shared_memory": lambda c: refused(
        lambda: c.register_cuda_shared_memory("r", b"eA==", 0, 8), "UNIMPLEMENTED", "shared memory"
    ),
    "unregister_cuda_shared_memory": lambda c: c.unregister_cuda_shared_memory(),
    "infer": lambda c: check(c.infer("m", tensors())),
    "infer.model_version": lambda c: check(c.infer("m", tensors(), model_version="7")),
    "infer.model_version, another": lambda c: refused(lambda: c.infer("m", tensors(), model_version="8"), "NOT_FOUND", "'8'"),
    "infer.outputs": lambda c: (
        c.infer("m", tensors(), outputs=[triton.InferRequestedOutput("n")]).as_numpy("y") is None
        or pytest.fail("y was not asked for")
    ),
    "infer.outputs.class_count": lambda c: (
        c.infer("m", tensors(), outputs=[triton.InferRequestedOutput("y", 1)]).as_numpy("y").tolist()
        == [[b"4.000000:2"], [b"10.000000:2"]]
        or pytest.fail("classes")
    ),
    "infer.outputs, unknown": lambda c: refused(
        lambda: c.infer("m", tensors(), outputs=[triton.InferRequestedOutput("z")]), "INVALID_ARGUMENT", "no output 'z'"
    ),
    "infer.request_id": lambda c: c.infer("m", tensors(), request_id="q1").get_response().id == "q1" or pytest.fail("id"),
    "infer.sequence_id": lambda c: refused(lambda: c.infer("m", tensors(), sequence_id=5), "INVALID_ARGUMENT", "sequence_id"),
    "infer.sequence_start": lambda c: refused(
        lambda: c.infer("m", tensors(), sequence_id=5, sequence_start=True), "INVALID_ARGUMENT"
    ),
    "infer.sequence_end": lambda c: refused(
        lambda: c.infer("m", tensors(), sequence_id=5, sequence_end=True), "INVALID_ARGUMENT"
    ),
    "infer.priority": lambda c: refused(lambda: c.infer("m", tensors(), priority=1), "INVALID_ARGUMENT", "priority"),
    "infer.timeout": lambda c: check(c.infer("m", tensors(), timeout=20_000_000)),
    "infer.client_timeout": lambda c: check(c.infer("m", tensors(), client_timeout=20)),
    "infer.headers": lambda c: check(c.infer("m", tensors(), headers={"x-a": "1"})),
    "infer.compression_algorithm, gzip": lambda c: check(c.infer("m", tensors(), compression_algorithm="gzip")),
    "infer.compression_algorithm, deflate": lambda c: check(c.infer("m", tensors(), compression_algorithm="deflate")),
    "infer.parameters": lambda c: refused(lambda: c.infer("m", tensors(), parameters={"a": 1}), "INVALID_ARGUMENT", "'a'"),
    "infer, the model refuses": lambda c: refused(lambda: c.infer("m", tensors(-X - 1)), "INVALID_ARGUMENT", "negative"),
    "infer, another model": lambda c: refused(lambda: c.infer("z", tensors()), "NOT_FOUND"),
    "infer, a missing input": lambda c: refused(lambda: c.infer("m", tensors()[:1]), "INVALID_ARGUMENT", "1 inputs"),
    "infer, large": lambda c: (
        c.infer("m", tensors(np.ones((200_000, 3), "f4"), np.array([b"a"] * 200_000, object))).as_numpy("n").sum() == 200_000
        or pytest.fail("sum")
    ),
    "async_infer": lambda c: check(soon(c)),
    "async_infer.request_id": lambda c: soon(c, request_id="q2").get_response().id == "q2" or pytest.fail("id"),
    "async_infer.compression_algorithm": lambda c: check(soon(c, compression_algorithm="gzip")),
    "start_stream, async_stream_infer, stop_stream": lambda c: [check(result) for result, _ in stream(c, [{}] * 100)],
    "async_stream_infer.request_id": lambda c: (
        [result.get_response().id for result, _ in stream(c, [{"request_id": str(n)} for n in range(1, 50)])]
        == [str(n) for n in range(1, 50)]
        or pytest.fail("order")
    ),
    "async_stream_infer.outputs": lambda c: (
        stream(c, [{"outputs": [triton.InferRequestedOutput("y")]}])[0][0].as_numpy("n") is None
        or pytest.fail("n was not asked for")
    ),
    "async_stream_infer, refused": lambda c: (
        "sequence_id" in str(stream(c, [{"sequence_id": 3}, {}])[0][1]) or pytest.fail("no error")
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_tritonclient(client: object, name: str) -> None:
    CASES[name](client)


def test_every_method_of_tritonclient_has_a_case() -> None:
    methods = {name for name in vars(triton.InferenceServerClient) if not name.startswith("_")} - {"close", "register_plugin"}
    covered = set(re.findall(r"[a-z_]+", " ".join(CASES)))
    assert methods - covered == set()


def test_the_asynchronous_tritonclient(address: str) -> None:
    from tritonclient.grpc import aio

    async def talk() -> None:
        async with aio.InferenceServerClient(address) as client:
            assert await client.is_server_ready()
            results = await asyncio.gather(*(client.infer("m", tensors()) for _ in range(50)))
            for result in results:
                check(result)

    asyncio.run(talk())


def test_health_and_reflection(address: str) -> None:
    health = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_health.v1 import health_pb2
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    with grpc.insecure_channel(address) as channel:
        stub = health.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest()).status == 1
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="inference.GRPCInferenceService"))
        assert next(watch).status == 1
        watch.cancel()
        known = ProtoReflectionDescriptorDatabase(channel)
        assert "inference.GRPCInferenceService" in known.get_services()
        pool = DescriptorPool(known)
        found = pool.FindServiceByName("tensorflow.serving.PredictionService").FindMethodByName("Predict")
        assert found.input_type.fields_by_name["inputs"].message_type.fields_by_name["value"].message_type.name == "TensorProto"


def test_an_unknown_method_and_a_message_that_is_none(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        for path, code in (("/a.B/C", "UNIMPLEMENTED"), ("/inference.GRPCInferenceService/ModelInfer", "INVALID_ARGUMENT")):
            with pytest.raises(grpc.RpcError) as raised:
                channel.unary_unary(path)(b"\xff\xff")
            assert raised.value.code().name == code


# A third-party server behind the router.


class Anything(grpc.GenericRpcHandler):
    """Methods by their names."""

    def service(self, details):
        name = details.method.rpartition("/")[2]

        def fail(request, context):
            context.set_trailing_metadata((("x-more", "1"),))
            context.abort(grpc.StatusCode[request.decode()], "no: ü")

        return {
            "Unary": grpc.unary_unary_rpc_method_handler(lambda request, _: b"u" + request),
            "Both": grpc.stream_stream_rpc_method_handler(lambda requests, _: (b"b" + each for each in requests)),
            "Down": grpc.unary_stream_rpc_method_handler(lambda request, _: (b"x" * int(request) for _ in range(100))),
            "Up": grpc.stream_unary_rpc_method_handler(lambda requests, _: b"%d" % sum(map(len, requests))),
            "Fail": grpc.unary_unary_rpc_method_handler(fail),
        }.get(name)


@pytest.fixture(scope="module")
def behind() -> Iterator[object]:
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((Anything(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    router = RouterProcess(f"127.0.0.1:{port}", "grpc")
    with grpc.insecure_channel(f"127.0.0.1:{router.port}", options=[("grpc.max_receive_message_length", -1)]) as channel:
        yield channel
    router.end()
    server.stop(None).wait()


def test_every_kind_of_method_passes(behind) -> None:
    assert behind.unary_unary("/t.T/Unary")(b"x", timeout=20) == b"ux"
    assert list(behind.stream_stream("/t.T/Both")(iter([b"1", b"2"]))) == [b"b1", b"b2"]
    assert sum(map(len, behind.unary_stream("/t.T/Down")(b"50000"))) == 5_000_000
    assert behind.stream_unary("/t.T/Up")(iter([b"y" * 500_000] * 20)) == b"10000000"


def test_messages_pass_one_by_one_both_ways(behind) -> None:
    asks: queue.Queue = queue.Queue()
    answers = behind.stream_stream("/t.T/Both")(iter(asks.get, None))
    for number in range(5):
        asks.put(b"%d" % number)
        assert next(answers) == b"b%d" % number
    asks.put(None)
    assert list(answers) == []


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "UNAVAILABLE", "INTERNAL", "DATA_LOSS"])
def test_statuses_messages_and_trailers_pass(behind, code: str) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        behind.unary_unary("/t.T/Fail")(code.encode())
    assert (raised.value.code().name, raised.value.details()) == (code, "no: ü")
    assert dict(raised.value.trailing_metadata())["x-more"] == "1"


def test_many_calls_at_once_over_one_connection(behind) -> None:
    found: list[bytes] = []

    def ask(number: int) -> None:
        found.append(behind.unary_unary("/t.T/Unary")(b"%d" % number, timeout=30))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(b"u%d" % number for number in range(200))


def test_a_websocket_passes_the_router() -> None:
    pytest.importorskip("websockets")
    from websockets.asyncio.client import connect
    from websockets.asyncio.server import serve

    async def echo(socket) -> None:
        async for message in socket:
            await socket.send(message)

    async def talk() -> None:
        async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
            router = RouterProcess(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "http")
            try:
                async with connect(f"ws://127.0.0.1:{router.port}/chat", max_size=None) as socket:
                    await socket.send("hello")
                    assert await socket.recv() == "hello"
                    await socket.send(b"x" * 2_000_000)
                    assert await socket.recv() == b"x" * 2_000_000
            finally:
                router.end()

    asyncio.run(talk())
