"""kserve.InferenceRESTClient: both versions of the protocol, every method and option."""

from __future__ import annotations

import asyncio
import inspect
import math
from typing import Any

import numpy as np
from cases import REFUSED, Cases, refused, same

CASES = Cases()
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


class World:
    """One client for each version of the protocol."""

    def __init__(self, at: dict[str, str]) -> None:
        import httpx
        import kserve
        from kserve.inference_client import RESTConfig

        self.at, self.m = at, at["m"]
        self.kserve, self.httpx, self.Config = kserve, httpx, RESTConfig
        self.loop = asyncio.new_event_loop()
        self._clients = {version: self.made(protocol=version) for version in ("v1", "v2")}

    def made(self, **named: Any) -> Any:
        async def make() -> Any:
            return self.kserve.InferenceRESTClient(self.Config(**named))

        return self.loop.run_until_complete(make())

    def ask(self, version: str, method: str, *given: Any, **named: Any) -> Any:
        return self.loop.run_until_complete(getattr(self._clients[version], method)(*given, **named))

    def close(self) -> None:
        for client in self._clients.values():
            self.loop.run_until_complete(client.close())

    def request(
        self, array: Any = X, word: str = "FP32", name: str = "x", model: str = "m", *, binary: bool = True, **more: Any
    ) -> Any:
        made = self.kserve.InferInput(name, list(array.shape), word)
        made.set_data_from_numpy(array, binary_data=binary)
        return self.kserve.InferRequest(model_name=model, infer_inputs=[made], **more)


def both(method: str, *options: str) -> tuple[str, ...]:
    return (method, *(f"{method}.{option}" for option in options))


_LOOKS = {"is_server_live": (), "is_server_ready": (), "is_model_ready": ("m",)}


def _add_looks() -> None:
    for method, given in _LOOKS.items():
        for version in ("v1", "v2"):
            if (method, version) == ("is_server_ready", "v1"):
                continue  # the client itself has none
            for option, value in (("base_url", None), ("headers", {"X-User": "a"}), ("timeout", 20.0)):

                def run(world: World, ask: Any = (version, method), given: Any = given, named: Any = (option, value)) -> None:
                    more = {named[0]: named[1]} if named[1] is not None else {}
                    same(world.ask(*ask, world.m, *given, **more), True)

                CASES.add(f"{version}-{method}-{option}", run, *both(method, option))


_add_looks()


@CASES("is_model_ready.model_name")
def v1_model_that_is_not_there(world: World) -> None:
    refused(lambda: world.ask("v1", "is_model_ready", world.m, "other"), world.httpx.HTTPStatusError, "404", "'m' is served")


@CASES("is_model_ready.model_name")
def v2_model_that_is_not_there(world: World) -> None:
    try:
        found = world.ask("v2", "is_model_ready", world.m, "other")
    except world.httpx.HTTPStatusError as error:
        same(error.response.status_code, 404)
    else:
        same(found, False)


@CASES(*both("infer", "base_url", "data", "model_name"))
def v1_predict(world: World) -> None:
    same(world.ask("v1", "infer", world.m, {"instances": X.tolist()}, "m"), {"predictions": (2 * X).tolist()})


@CASES("infer.data")
def v1_predict_by_name(world: World) -> None:
    same(world.ask("v1", "infer", world.m, {"inputs": {"x": X.tolist()}}, model_name="m"), {"outputs": (2 * X).tolist()})


@CASES("infer.headers", "infer.response_headers", "infer.timeout")
def v1_options(world: World) -> None:
    headers: dict[str, str] = {}
    world.ask(
        "v1", "infer", world.m, {"instances": [[1, 2, 3]]}, "m", headers={"X-User": "a"}, response_headers=headers, timeout=20
    )
    same(headers["content-type"], "application/json")


@CASES("infer.is_graph_endpoint")
def v1_graph(world: World) -> None:
    found = world.ask("v1", "infer", f"{world.m}/v1/models/m:predict", {"instances": [[1, 2, 3]]}, is_graph_endpoint=True)
    same(found, {"predictions": [[2.0, 4.0, 6.0]]})


@CASES("infer.data", outcome=REFUSED)
def v1_wrong(world: World) -> None:
    refused(lambda: world.ask("v1", "infer", world.m, {"instances": [[1]]}, "m"), world.httpx.HTTPStatusError, "400", "[-1, 3]")
    refused(lambda: world.ask("v1", "infer", world.m, {"rows": [[1]]}, "m"), world.httpx.HTTPStatusError, "400", "instances")


@CASES(*both("explain", "base_url", "model_name", "data", "headers", "timeout"), outcome=REFUSED)
def v1_explain(world: World) -> None:
    named = {"headers": {"X-User": "a"}, "timeout": 20.0}
    refused(lambda: world.ask("v1", "explain", world.m, "m", {"instances": [[1, 2, 3]]}, **named), world.httpx.HTTPStatusError,
            "explain", "predict")  # fmt: skip


@CASES("infer", "infer.data")
def v2_binary(world: World) -> None:
    found = world.ask("v2", "infer", world.m, world.request(), model_name="m")
    same(found.model_name, "m")
    same(found.outputs[0].as_numpy().tolist(), (2 * X).tolist())


@CASES("infer.data")
def v2_json(world: World) -> None:
    found = world.ask("v2", "infer", world.m, world.request(binary=False), model_name="m")
    same([found.outputs[0].name, found.outputs[0].shape, found.outputs[0].data], ["y", [2, 3], (2 * X).ravel().tolist()])


@CASES("infer.data")
def v2_as_a_dictionary(world: World) -> None:
    data = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [[1, 2, 3]]}]}
    same(world.ask("v2", "infer", world.m, data, model_name="m").outputs[0].data, [2.0, 4.0, 6.0])


@CASES("infer.data")
def v2_request_id_and_binary_answer(world: World) -> None:
    asked = world.request(request_id="r-1", parameters={"binary_data_output": True})
    found = world.ask("v2", "infer", world.m, asked, model_name="m")
    same([found.id, found.outputs[0].as_numpy().tolist()], ["r-1", (2 * X).tolist()])


@CASES("infer.data")
def v2_outputs_that_are_named(world: World) -> None:
    from kserve.protocol.infer_type import RequestedOutput

    y = RequestedOutput("y", parameters={"binary_data": True})
    found = world.ask("v2", "infer", world.m, world.request(request_outputs=[y]), model_name="m")
    same(found.outputs[0].as_numpy().tolist(), (2 * X).tolist())


@CASES("infer.data")
def v2_every_datatype(world: World) -> None:
    arrays = {
        "BOOL": np.array([[True, False]]), "BYTES": np.array([[b"a", "b\u00e9".encode()]], object),
        **{f"INT{bits}": np.array([[0, -100]], f"int{bits}") for bits in (8, 16, 32, 64)},
        **{f"UINT{bits}": np.array([[0, 100]], f"uint{bits}") for bits in (8, 16, 32, 64)},
        **{f"FP{bits}": np.array([[0.5, -3.25]], f"float{bits}") for bits in (16, 32, 64)},
    }  # fmt: skip
    inputs = []
    for word, array in arrays.items():
        inputs.append(world.kserve.InferInput(word.lower(), list(array.shape), word))
        inputs[-1].set_data_from_numpy(array, binary_data=True)
    half = world.kserve.InferInput("bf16", [1, 2], "BF16")
    half._raw_data = np.array([0x3FC0, 0xC000], np.uint16).tobytes()  # the client has no such method
    half._parameters = {"binary_data_size": 4}
    from kserve.protocol.infer_type import RequestedOutput

    outputs = [RequestedOutput(f"{word.lower()}_out", parameters={"binary_data": True}) for word in arrays]
    asked = world.kserve.InferRequest(model_name="types", infer_inputs=[*inputs, half], request_outputs=outputs)
    found = world.ask("v2", "infer", world.at["types"], asked, model_name="types")
    for output, (word, array) in zip(found.outputs, arrays.items(), strict=True):
        values = output.as_numpy()
        texts = [[each if isinstance(each, bytes) else str(each).encode() for each in row] for row in values.tolist()]
        same([word, texts if word == "BYTES" else values.tolist()], [word, array.tolist()])


@CASES("infer.data")
def v2_numbers_that_are_none(world: World) -> None:
    odd = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    found = world.ask("v2", "infer", world.m, world.request(odd, parameters={"binary_data_output": True}), model_name="m")
    values = found.outputs[0].as_numpy()[0]
    same([math.isnan(values[0]), values[1], values[2]], [True, math.inf, -math.inf])


@CASES("infer.data")
def v2_no_rows(world: World) -> None:
    asked = world.request(X[:0], parameters={"binary_data_output": True})
    same(world.ask("v2", "infer", world.m, asked, model_name="m").outputs[0].shape, [0, 3])


@CASES("infer.headers", "infer.response_headers", "infer.timeout")
def v2_options(world: World) -> None:
    headers: dict[str, str] = {}
    named = {"model_name": "m", "headers": {"X-User": "a"}, "response_headers": headers, "timeout": 20}
    world.ask("v2", "infer", world.m, world.request(), **named)
    assert "content-length" in headers, headers


@CASES("infer.is_graph_endpoint")
def v2_graph(world: World) -> None:
    found = world.ask("v2", "infer", f"{world.m}/v2/models/m/infer", world.request(binary=False), is_graph_endpoint=True)
    same(found["outputs"][0]["shape"], [2, 3])


@CASES("infer.data", "infer.model_name", outcome=REFUSED)
def v2_wrong(world: World) -> None:
    error = world.httpx.HTTPStatusError
    refused(lambda: world.ask("v2", "infer", world.m, world.request(name="z"), model_name="m"), error, "400", "'z'")
    refused(lambda: world.ask("v2", "infer", world.m, world.request(), model_name="other"), error, "404", "'m' is served")
    refused(lambda: world.ask("v2", "infer", world.m, world.request(parameters={"a": 1}), model_name="m"), error, "400", "'a'")


_CONFIGS: dict[str, Any] = {
    "retries": 1, "timeout": 20.0, "verbose": True, "verify": False, "http2": False, "cert": None, "auth": ("user", "word"),
    "transport": None, "protocol": "v2",
}  # fmt: skip


def _add_configs() -> None:
    for option, value in _CONFIGS.items():

        def run(world: World, named: Any = (option, value)) -> None:
            client = world.made(**{"protocol": "v2", named[0]: named[1]})
            try:
                found = world.loop.run_until_complete(client.infer(world.m, world.request(), model_name="m"))
                same(found.outputs[0].as_numpy().tolist(), (2 * X).tolist())
            finally:
                world.loop.run_until_complete(client.close())

        CASES.add(f"config-{option}", run, f"RESTConfig.{option}", "close")


_add_configs()


@CASES("GET /v1/models", "GET /v2/models", "POST /v2/repository/models/m/load")
def routes_without_a_method(world: World) -> None:
    get = world.httpx.get
    same(get(f"{world.m}/v1/models").json()["models"], ["m"])
    same(get(f"{world.m}/v2/models").json(), {"models": ["m"]})
    same(world.httpx.post(f"{world.m}/v2/repository/models/m/load").json(), {"name": "m", "load": True})
    same([get(f"{world.m}{path}").json() for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/m/ready")],
         [{"live": True}, {"ready": True}, {"name": "m", "ready": True}])  # fmt: skip


def surface() -> set[str]:
    """Return every method with its options, and every option of the configuration."""
    import kserve
    from kserve.inference_client import RESTConfig

    found = {f"RESTConfig.{each}" for each in inspect.signature(RESTConfig.__init__).parameters if each != "self"}
    for name, method in inspect.getmembers(kserve.InferenceRESTClient, inspect.isfunction):
        if not name.startswith("_"):
            found.add(name)
            found |= {f"{name}.{each}" for each in inspect.signature(method).parameters if each != "self"}
    return found
