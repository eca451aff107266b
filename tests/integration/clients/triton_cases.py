"""tritonclient.http and tritonclient.http.aio: every public method with every option."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import urllib.request
from typing import Any

import numpy as np
from cases import REFUSED, Cases, refused, same

CASES = Cases()
_FLAVOURS = ("http", "aio")


class World:
    """Both clients, for every replica."""

    def __init__(self, at: dict[str, str]) -> None:
        import tritonclient.http as http
        import tritonclient.http.aio as aio
        from tritonclient.utils import InferenceServerException

        self.at = at
        self.http = http
        self.Error = InferenceServerException
        self._loop = asyncio.new_event_loop()

        async def made(address: str) -> Any:
            return aio.InferenceServerClient(address)

        hosts = {name: address.removeprefix("http://") for name, address in at.items()}
        self._clients = {
            **{("http", name): http.InferenceServerClient(host, concurrency=4) for name, host in hosts.items()},
            **{("aio", name): self._loop.run_until_complete(made(host)) for name, host in hosts.items()},
        }

    def use(self, flavour: str, replica: str = "m") -> Caller:
        return Caller(self._clients[flavour, replica], self._loop)

    def close(self) -> None:
        for (flavour, _), client in self._clients.items():
            if flavour == "http":
                client.close()
            else:
                self._loop.run_until_complete(client.close())

    def tensor(self, array: Any, word: str = "FP32", name: str = "x", **more: Any) -> Any:
        made = self.http.InferInput(name, list(array.shape), word)
        made.set_data_from_numpy(array, **more)
        return made


class Caller:
    """One client: `caller.infer(...)`, whether it is the asynchronous one or not."""

    def __init__(self, client: Any, loop: Any) -> None:
        self.client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        do = getattr(self.client, name)

        def call(*given: Any, **named: Any) -> Any:
            found = do(*given, **named)
            return self._loop.run_until_complete(found) if inspect.isawaitable(found) else found

        return call


def both(*covers: str, outcome: str = "honoured", only: tuple[str, ...] = _FLAVOURS, name: str = "") -> Any:
    """Add a case for each of the two clients: the function gets the world and the name of the client."""

    def keep(run: Any) -> Any:
        for flavour in only:
            CASES.add(
                f"{flavour}-{run.__name__}{name}",
                lambda world, flavour=flavour: run(world, flavour),
                *(f"{flavour}.{each}" for each in covers),
                outcome=outcome,
            )
        return run

    return keep


def of(method: str, *options: str) -> tuple[str, ...]:
    """Return a method and some of its options."""
    return (method, *(f"{method}.{option}" for option in options))


X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)

# Requests that only read: method, arguments, expected result.
_QUESTIONS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "is_server_live": ((), True),
    "is_server_ready": ((), True),
    "is_model_ready": (("m",), True),
    "get_server_metadata": ((), {"name": "fairway"}),
    "get_model_metadata": (("m",), {"name": "m", "versions": ["7"]}),
    "get_model_config": (("m",), {"name": "m", "max_batch_size": 64}),
    "get_model_repository_index": ((), [{"name": "m", "version": "7", "state": "READY", "reason": ""}]),
    "get_inference_statistics": (("m",), {}),
    "get_trace_settings": (("m",), {"trace_level": ["OFF"]}),
    "get_log_settings": ((), {"log_info": True}),
    "get_system_shared_memory_status": ((), []),
    "get_cuda_shared_memory_status": ((), []),
    "load_model": (("m",), None),
    "unregister_system_shared_memory": ((), None),
    "unregister_cuda_shared_memory": ((), None),
    "update_trace_settings": (("m",), {"trace_rate": "1000"}),
}


def _add_questions() -> None:
    for method, (given, wanted) in _QUESTIONS.items():
        for option, value in (("", None), ("headers", {"X-Name": "value"}), ("query_params", {"a": "1", "b": 2})):
            named = {option: value} if option else {}
            if method == "update_trace_settings":
                named["settings"] = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": None}

            def run(
                world: Any, flavour: str, do: str = method, given: Any = given, named: Any = named, wanted: Any = wanted
            ) -> None:
                found = getattr(world.use(flavour), do)(*given, **named)
                if isinstance(wanted, dict):
                    found = {name: found[name] for name in wanted}
                same(found, wanted)

            run.__name__ = f"{method}-{option}".strip("-")
            both(f"{method}.{option}".strip("."))(run)


_add_questions()


@both("update_log_settings.settings", "update_log_settings.headers", "update_log_settings.query_params", "update_log_settings")
def log_settings_as_they_are(world: Any, flavour: str) -> None:
    asked = {"log_info": True, "log_verbose_level": 0, "log_file": ""}
    same(world.use(flavour).update_log_settings(asked, {"X-A": "b"}, {"c": 1})["log_info"], True)


@both("update_log_settings.settings", outcome=REFUSED)
def log_settings_changed(world: Any, flavour: str) -> None:
    refused(lambda: world.use(flavour).update_log_settings({"log_verbose_level": 3}), world.Error, "log_verbose_level")
    refused(lambda: world.use(flavour).update_log_settings({"log_wrong": 3}), world.Error, "log_wrong")


@both("update_trace_settings.settings", "update_trace_settings.model_name", outcome=REFUSED)
def trace_settings_changed(world: Any, flavour: str) -> None:
    refused(
        lambda: world.use(flavour).update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}), world.Error, "trace_level"
    )


@both("get_trace_settings.model_name")
def trace_settings_of_the_server(world: Any, flavour: str) -> None:
    same(world.use(flavour).get_trace_settings()["trace_mode"], "triton")


@both("is_model_ready.model_name", "is_model_ready.model_version")
def readiness_of_versions(world: Any, flavour: str) -> None:
    client = world.use(flavour)
    same([client.is_model_ready("m", each) for each in ("7", "8")], [True, False])
    same(client.is_model_ready("other"), False)


@both("get_model_metadata.model_version", "get_model_metadata.model_name")
def metadata_of_a_version(world: Any, flavour: str) -> None:
    found = world.use(flavour).get_model_metadata("m", "7")
    same(found["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}])
    refused(lambda: world.use(flavour).get_model_metadata("other"), world.Error, "other", "'m' is served")
    refused(lambda: world.use(flavour).get_model_metadata("m", "9"), world.Error, "version 7 is served")


@both("get_server_metadata")
def extensions(world: Any, flavour: str) -> None:
    found = world.use(flavour).get_server_metadata()["extensions"]
    assert {"binary_tensor_data", "classification", "model_configuration", "statistics"} <= set(found), found
    assert not any("shared_memory" in each or each == "sequence" for each in found), found


@both("get_model_config.model_version", "get_model_config.model_name")
def configuration(world: Any, flavour: str) -> None:
    found = world.use(flavour).get_model_config("m", "7")
    tensor = {name: found["input"][0][name] for name in ("name", "data_type", "dims")}
    same(tensor, {"name": "x", "data_type": "TYPE_FP32", "dims": [3]})
    same(found["output"][0]["dims"], [3])
    types = world.use(flavour, "types").get_model_config("types")
    same([each["data_type"] for each in types["input"]][-2:], ["TYPE_BF16", "TYPE_STRING"])
    refused(lambda: world.use(flavour).get_model_config("other"), world.Error, "other")


@both("get_inference_statistics.model_name", "get_inference_statistics.model_version", "get_inference_statistics")
def statistics(world: Any, flavour: str) -> None:
    client = world.use(flavour, "counted")

    def now() -> dict[str, Any]:
        return dict(client.get_inference_statistics("counted", "1")["model_stats"][0])

    before = now()
    for _ in range(3):
        client.infer("counted", [world.tensor(X)])
    refused(lambda: client.infer("counted", [world.tensor(X, name="wrong")]), world.Error, "wrong")
    after = now()

    def grown(*path: str) -> int:
        found = [before, after]
        for name in path:
            found = [each[name] for each in found]
        return int(found[1] - found[0])

    same([grown("inference_count"), grown("execution_count")], [6, 3])
    same([grown("inference_stats", each, "count") for each in ("success", "fail", "queue", "compute_infer")], [3, 1, 3, 3])
    times = [grown("inference_stats", each, "ns") for each in ("success", "queue", "compute_infer")]
    assert times[0] >= times[1] + times[2] > 0, times
    size = {each["batch_size"]: each["compute_infer"]["count"] for each in after["batch_stats"]}
    assert size[2] >= 3, size
    assert abs(after["last_inference"] / 1000 - __import__("time").time()) < 60
    same(client.get_inference_statistics()["model_stats"][0]["name"], "counted")
    refused(lambda: client.get_inference_statistics("other"), world.Error, "other")


# Loading and unloading.


@both("load_model.config", "load_model.files", outcome=REFUSED)
def loading_with_another_configuration(world: Any, flavour: str) -> None:
    client = world.use(flavour)
    refused(lambda: client.load_model("m", config=json.dumps({"max_batch_size": 2})), world.Error, "config", "register")
    files = {"file:1/model.onnx": b"abc"}
    refused(lambda: client.load_model("m", config="{}", files=files), world.Error, "file:1/model.onnx")


@both("load_model.model_name", outcome=REFUSED)
def loading_another_model(world: Any, flavour: str) -> None:
    refused(lambda: world.use(flavour).load_model("other"), world.Error, "no model 'other' here", "'m' is served")


@both(*of("unload_model", "model_name", "headers", "query_params", "unload_dependents"), outcome=REFUSED)
def unloading(world: Any, flavour: str) -> None:
    client = world.use(flavour)
    refused(lambda: client.unload_model("m", {"X-A": "b"}, {"c": 1}, unload_dependents=True), world.Error, "fairway delete")
    same(client.is_model_ready("m"), True)


# Shared memory.


@both(*of("register_system_shared_memory", "name", "key", "byte_size", "offset", "headers", "query_params"), outcome=REFUSED)
def system_shared_memory(world: Any, flavour: str) -> None:
    do = world.use(flavour).register_system_shared_memory
    refused(lambda: do("region", "/key", 64, offset=8, headers={"a": "b"}, query_params={"c": 1}), world.Error, "binary data")


@both(*of("register_cuda_shared_memory", "name", "raw_handle", "device_id", "byte_size", "headers", "query_params"),
      outcome=REFUSED)  # fmt: skip
def cuda_shared_memory(world: Any, flavour: str) -> None:
    do = world.use(flavour).register_cuda_shared_memory
    refused(lambda: do("region", b"aGFuZGxl", 0, 64, headers={"a": "b"}, query_params={"c": 1}), world.Error, "binary data")


@both("get_system_shared_memory_status.region_name", "get_cuda_shared_memory_status.region_name", outcome=REFUSED)
def status_of_a_region(world: Any, flavour: str) -> None:
    client = world.use(flavour)
    refused(lambda: client.get_system_shared_memory_status("region"), world.Error, "region")
    refused(lambda: client.get_cuda_shared_memory_status("region"), world.Error, "region")


@both("unregister_system_shared_memory.name", "unregister_cuda_shared_memory.name")
def unregistering_what_is_not_there(world: Any, flavour: str) -> None:
    same(world.use(flavour).unregister_system_shared_memory("region"), None)
    same(world.use(flavour).unregister_cuda_shared_memory("region"), None)


@both("InferInput.set_shared_memory", "InferRequestedOutput.set_shared_memory", outcome=REFUSED)
def tensors_in_shared_memory(world: Any, flavour: str) -> None:
    x = world.http.InferInput("x", [2, 3], "FP32")
    x.set_shared_memory("region", 24)
    refused(lambda: world.use(flavour).infer("m", [x]), world.Error, "shared memory")
    y = world.http.InferRequestedOutput("y")
    y.set_shared_memory("region", 24)
    refused(lambda: world.use(flavour).infer("m", [world.tensor(X)], outputs=[y]), world.Error, "shared memory")


@both("InferRequestedOutput.unset_shared_memory")
def an_output_that_left_shared_memory(world: Any, flavour: str) -> None:
    y = world.http.InferRequestedOutput("y")
    y.set_shared_memory("region", 24)
    y.unset_shared_memory()
    same(world.use(flavour).infer("m", [world.tensor(X)], outputs=[y]).as_numpy("y").tolist(), (2 * X).tolist())


# Inference.


@both("infer", "infer.inputs", "infer.model_name", "InferResult.as_numpy", "InferResult.get_output", "InferResult.get_response",
      "InferInput.set_data_from_numpy", "InferInput.name", "InferInput.datatype", "InferInput.shape")  # fmt: skip
def binary_both_ways(world: Any, flavour: str) -> None:
    x = world.tensor(X)
    same([x.name(), x.datatype(), list(x.shape())], ["x", "FP32", [2, 3]])
    found = world.use(flavour).infer("m", [x])
    same(found.as_numpy("y").tolist(), (2 * X).tolist())
    same(found.get_output("y")["shape"], [2, 3])
    same([found.get_response()[each] for each in ("model_name", "model_version")], ["m", "7"])


@both("InferInput.set_data_from_numpy.binary_data", "infer.outputs", "InferRequestedOutput.name")
def json_both_ways(world: Any, flavour: str) -> None:
    y = world.http.InferRequestedOutput("y", binary_data=False)
    found = world.use(flavour).infer("m", [world.tensor(X, binary_data=False)], outputs=[y])
    same([y.name(), found.get_output("y")["data"]], ["y", (2 * X).ravel().tolist()])
    same(found.as_numpy("y").tolist(), (2 * X).tolist())


@both("InferInput.set_data_from_numpy.binary_data", "infer.inputs")
def json_with_numbers_that_are_none(world: Any, flavour: str) -> None:
    odd = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    found = world.use(flavour).infer("m", [world.tensor(odd, binary_data=False)]).as_numpy("y")[0]
    same([math.isnan(found[0]), found[1], found[2]], [True, math.inf, -math.inf])


@both("infer.inputs", "InferInput.set_data_from_numpy")
def every_datatype(world: Any, flavour: str) -> None:
    arrays = {
        "BOOL": np.array([[True, False]]), "BYTES": np.array([[b"a\xff", "b\u00e9".encode()]], object),
        "BF16": np.array([[1.5, -2.0]], _dtype("BF16")),
        **{f"INT{bits}": np.array([[0, -100]], f"int{bits}") for bits in (8, 16, 32, 64)},
        **{f"UINT{bits}": np.array([[0, 100]], f"uint{bits}") for bits in (8, 16, 32, 64)},
        **{f"FP{bits}": np.array([[0.5, -3.25]], f"float{bits}") for bits in (16, 32, 64)},
    }  # fmt: skip
    found = world.use(flavour, "types").infer(
        "types", [world.tensor(array, word, word.lower()) for word, array in arrays.items()]
    )
    for word, array in arrays.items():
        same([word, found.as_numpy(f"{word.lower()}_out").tolist()], [word, array.tolist()])


@both("infer.model_version")
def a_version(world: Any, flavour: str) -> None:
    client = world.use(flavour)
    same(client.infer("m", [world.tensor(X)], model_version="7").as_numpy("y").shape, (2, 3))
    refused(lambda: client.infer("m", [world.tensor(X)], model_version="8"), world.Error, "version 7 is served")


@both("infer.request_id")
def a_request_id(world: Any, flavour: str) -> None:
    same(world.use(flavour).infer("m", [world.tensor(X)], request_id="a-17").get_response()["id"], "a-17")


@both("infer.headers", "infer.query_params")
def headers_and_query(world: Any, flavour: str) -> None:
    found = world.use(flavour).infer("m", [world.tensor(X)], headers={"X-User": "a"}, query_params={"a": [1, 2], "b": "c"})
    same(found.as_numpy("y").shape, (2, 3))


for _option, _value in (("sequence_id", 5), ("sequence_id", "abc"), ("sequence_start", True), ("sequence_end", True)):

    @both(f"infer.{_option}", outcome=REFUSED, name=f"-{_option}-{_value}")
    def sequences(world: Any, flavour: str, option: str = _option, value: Any = _value) -> None:
        named = {"sequence_id": 5, option: value}
        refused(lambda: world.use(flavour).infer("m", [world.tensor(X)], **named), world.Error, "sequence")


@both("infer.priority", outcome=REFUSED)
def a_priority(world: Any, flavour: str) -> None:
    refused(lambda: world.use(flavour).infer("m", [world.tensor(X)], priority=2), world.Error, "priority")
    same(world.use(flavour).infer("m", [world.tensor(X)], priority=0).as_numpy("y").shape, (2, 3))


@both("infer.timeout")
def a_timeout(world: Any, flavour: str) -> None:
    client = world.use(flavour, "slow")

    def wait(seconds: float, timeout: int) -> Any:
        return client.infer("slow", [world.tensor(np.array([[seconds]], np.float32), name="seconds")], timeout=timeout)

    refused(lambda: wait(0.2, 20_000), world.Error, "timeout of 0.02 s")
    same(wait(0.0, 20_000_000).as_numpy("waited").tolist(), [[0.0]])


@both("infer.parameters", outcome=REFUSED)
def own_parameters(world: Any, flavour: str) -> None:
    refused(lambda: world.use(flavour).infer("m", [world.tensor(X)], parameters={"beam": 3}), world.Error, "'beam'")


_LARGE = np.arange(3 * 40000, dtype=np.float32).reshape(-1, 3)
for _algorithm in ("gzip", "deflate"):

    @both("infer.request_compression_algorithm", name=f"-{_algorithm}")
    def compressed_requests(world: Any, flavour: str, algorithm: str = _algorithm) -> None:
        for array in (X, _LARGE):
            for binary in (True, False):
                sent = world.tensor(array[:4000] if not binary else array, binary_data=binary)
                found = world.use(flavour).infer("m", [sent], request_compression_algorithm=algorithm)
                same(float(found.as_numpy("y").sum()), float((2 * (array[:4000] if not binary else array)).sum(dtype=np.float32)))

    @both("infer.response_compression_algorithm", name=f"-{_algorithm}")
    def compressed_answers(world: Any, flavour: str, algorithm: str = _algorithm) -> None:
        for array in (X, _LARGE):
            found = world.use(flavour).infer("m", [world.tensor(array)], response_compression_algorithm=algorithm)
            assert np.array_equal(found.as_numpy("y"), 2 * array)
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2000, 3], "data": [1.0] * 6000}]}).encode()
        asked = urllib.request.Request(f"{world.at['m']}/v2/models/m/infer", body, {"Accept-Encoding": algorithm})
        with urllib.request.urlopen(asked) as answer:
            same(answer.headers["content-encoding"], algorithm)


@both("infer.inputs", "InferInput.set_shape")
def no_rows(world: Any, flavour: str) -> None:
    for binary in (True, False):
        found = world.use(flavour).infer("m", [world.tensor(X[:0], binary_data=binary)])
        same([found.as_numpy("y").shape, found.get_output("y")["shape"]], [(0, 3), [0, 3]])
    x = world.tensor(X)
    x.set_shape([6, 1])
    refused(lambda: world.use(flavour).infer("m", [x]), world.Error, "[6, 1]")


@both("InferRequestedOutput.class_count", "infer.outputs")
def classification(world: Any, flavour: str) -> None:
    for binary in (True, False):
        y = world.http.InferRequestedOutput("y", binary_data=binary, class_count=2)
        found = world.use(flavour).infer("m", [world.tensor(np.array([[1, 9, 5], [7, 3, 8]], np.float32))], outputs=[y])
        texts = [[each if isinstance(each, str) else each.decode() for each in row] for row in found.as_numpy("y")]
        same(texts, [["18.000000:1", "10.000000:2"], ["16.000000:2", "14.000000:0"]])
        same([found.get_output("y")[each] for each in ("datatype", "shape")], ["BYTES", [2, 2]])
    y = world.http.InferRequestedOutput("y", class_count=10**9)
    same(world.use(flavour).infer("m", [world.tensor(X)], outputs=[y]).as_numpy("y").shape, (2, 3))


@both("InferRequestedOutput.class_count")
def classification_of_integers(world: Any, flavour: str) -> None:
    client = world.use(flavour, "types")
    words = [each["datatype"] for each in client.get_model_metadata("types")["inputs"]]
    arrays = {word: np.zeros((1, 2), _dtype(word)) for word in words}
    arrays["INT8"] = np.array([[-128, 127]], np.int8)
    arrays["UINT64"] = np.array([[2**64 - 1, 0]], np.uint64)
    arrays["BYTES"] = np.array([[b"a", b"b"]], object)
    outputs = [world.http.InferRequestedOutput(f"{each}_out", class_count=1) for each in ("int8", "uint64")]
    found = client.infer("types", [world.tensor(array, word, word.lower()) for word, array in arrays.items()], outputs=outputs)
    same([found.as_numpy(f"{each}_out").tolist() for each in ("int8", "uint64")], [[[b"127:1"]], [[b"18446744073709551615:0"]]])


def _dtype(word: str) -> Any:
    from tritonclient.utils import triton_to_np_dtype

    return triton_to_np_dtype(word)


@both("infer.outputs", outcome=REFUSED)
def an_output_that_is_not_there(world: Any, flavour: str) -> None:
    outputs = [world.http.InferRequestedOutput("z")]
    refused(lambda: world.use(flavour).infer("m", [world.tensor(X)], outputs=outputs), world.Error, "'z'", "y")


@both(*of("async_infer", "model_name", "inputs", "model_version", "outputs", "request_id", "headers", "query_params", "timeout",
         "request_compression_algorithm", "response_compression_algorithm"), only=("http",))  # fmt: skip
def asynchronous(world: Any, flavour: str) -> None:
    client = world.use(flavour).client
    options = {"model_version": "7", "request_id": "r", "headers": {"a": "b"}, "query_params": {"c": 1}, "timeout": 10**7,
               "request_compression_algorithm": "gzip", "response_compression_algorithm": "deflate",
               "outputs": [world.http.InferRequestedOutput("y")]}  # fmt: skip
    waiting = [client.async_infer("m", [world.tensor(X + number)], **options) for number in range(8)]
    for number, each in enumerate(waiting):
        same(each.get_result().as_numpy("y").tolist(), (2 * (X + number)).tolist())


@both(*(f"async_infer.{each}" for each in ("sequence_id", "sequence_start", "sequence_end", "priority", "parameters")),
      outcome=REFUSED, only=("http",))  # fmt: skip
def asynchronous_and_refused(world: Any, flavour: str) -> None:
    client = world.use(flavour).client
    for named in ({"sequence_id": 1, "sequence_start": True, "sequence_end": True}, {"priority": 1}, {"parameters": {"a": 1}}):
        refused(lambda named=named: client.async_infer("m", [world.tensor(X)], **named).get_result(), world.Error)


@both("generate_request_body", *(f"generate_request_body.{each}" for each in ("inputs", "outputs", "request_id", "timeout")),
      "parse_response_body", "parse_response_body.header_length", "parse_response_body.content_encoding",
      "parse_response_body.verbose")  # fmt: skip
def bodies_by_hand(world: Any, flavour: str) -> None:
    kind = type(world.use(flavour).client)
    make = kind.generate_request_body
    body, length = make([world.tensor(X)], outputs=[world.http.InferRequestedOutput("y")], request_id="r", timeout=10**7)
    headers = {"Inference-Header-Content-Length": str(length)} if length else {}
    asked = urllib.request.Request(f"{world.at['m']}/v2/models/m/infer", body, headers)
    with urllib.request.urlopen(asked) as answer:
        found = kind.parse_response_body(answer.read(), False, int(answer.headers["Inference-Header-Content-Length"]), None)
    same([found.as_numpy("y").tolist(), found.get_response()["id"]], [(2 * X).tolist(), "r"])


@both(*(f"generate_request_body.{each}" for each in ("sequence_id", "sequence_start", "sequence_end", "priority", "parameters")),
      outcome=REFUSED)  # fmt: skip
def bodies_by_hand_and_refused(world: Any, flavour: str) -> None:
    make = type(world.use(flavour).client).generate_request_body
    for named in ({"sequence_id": 1, "sequence_start": True, "sequence_end": True}, {"priority": 1}, {"parameters": {"a": 1}}):
        body, length = make([world.tensor(X)], **named)
        asked = urllib.request.Request(
            f"{world.at['m']}/v2/models/m/infer", body, {"Inference-Header-Content-Length": str(length)}
        )
        refused(lambda asked=asked: urllib.request.urlopen(asked), urllib.error.HTTPError, "400")


@both("register_plugin", "register_plugin.plugin", "plugin", "unregister_plugin", "close")
def a_plugin(world: Any, flavour: str) -> None:
    from tritonclient.http import InferenceServerClientPlugin

    class Plugin(InferenceServerClientPlugin):  # type: ignore[misc]
        def __call__(self, request: Any) -> None:
            request.headers["X-Plugin"] = "yes"

    client = world.use(flavour).client
    client.register_plugin(Plugin())
    try:
        same(world.use(flavour).is_server_live(), True)
        assert client.plugin() is not None
    finally:
        client.unregister_plugin()


def surface() -> set[str]:
    """Return every public method and each of its options, as installed."""
    import tritonclient.http as http
    import tritonclient.http.aio as aio

    found = set()
    for flavour, kind in (("http", http.InferenceServerClient), ("aio", aio.InferenceServerClient)):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                found.add(f"{flavour}.{name}")
                found |= {f"{flavour}.{name}.{each}" for each in list(inspect.signature(method).parameters) if each != "self"}
    for kind in (http.InferInput, http.InferRequestedOutput, http.InferResult):
        names = [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
        found |= {f"http.{kind.__name__}.{name}" for name in names}
    return found - {"http.parse_response_body.response_body", "aio.parse_response_body.response_body"}
