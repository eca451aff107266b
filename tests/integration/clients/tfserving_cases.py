"""TensorFlow Serving's REST API, which has no client of its own: the documented routes and forms, with requests and httpx."""

from __future__ import annotations

import base64
import gzip
import json
import math
import zlib
from typing import Any

from cases import REFUSED, Cases, same

CASES = Cases()
ROUTES = {
    "GET status", "GET status of a version", "GET status of a label", "GET metadata", "GET metadata of a version",
    "GET metadata of a label", "POST predict", "POST predict of a version", "POST predict of a label", "POST classify",
    "POST classify of a version", "POST classify of a label", "POST regress", "POST regress of a version",
    "POST regress of a label", "GET metrics", "predict.signature_name", "predict.instances", "predict.inputs",
    "predict.b64", "predict.NaN", "classify.examples", "classify.context", "classify.signature_name", "regress.examples",
    "regress.context", "regress.signature_name", "errors", "gzip",
}  # fmt: skip
_BASES = {"": "", " of a version": "/versions/7", " of a label": "/labels/champion"}


class World:
    """Sends requests with both libraries."""

    def __init__(self, at: dict[str, str]) -> None:
        import httpx
        import requests

        self.at = at
        self._httpx, self._requests = httpx.Client(timeout=30), requests.Session()

    def get(self, path: str, model: str = "m") -> tuple[int, Any]:
        found = [each.get(f"{self.at[model]}{path}") for each in (self._httpx, self._requests)]
        same(found[0].status_code, found[1].status_code)
        if "json" not in found[0].headers["content-type"]:
            return found[0].status_code, found[0].text
        same(found[0].json(), found[1].json())
        return found[0].status_code, found[0].json()

    def post(self, path: str, body: Any, model: str = "m", headers: dict[str, str] | None = None) -> tuple[int, Any]:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        address = f"{self.at[model]}{path}"
        found = [
            self._httpx.post(address, content=sent, headers=headers),
            self._requests.post(address, data=sent, headers=headers),
        ]
        same([found[0].status_code, found[0].text], [found[1].status_code, found[1].text])
        return found[0].status_code, json.loads(found[0].text)

    def close(self) -> None:
        self._httpx.close()
        self._requests.close()


def _add_bases() -> None:
    for words, base in _BASES.items():

        def status(world: World, path: str = f"/v1/models/m{base}") -> None:
            code, found = world.get(path)
            wanted = {"version": "7", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
            same([code, found["model_version_status"]], [200, [wanted]])

        def metadata(world: World, path: str = f"/v1/models/m{base}/metadata") -> None:
            code, found = world.get(path)
            same([code, found["model_spec"]["name"], found["model_spec"]["version"]], [200, "m", "7"])
            signature = found["metadata"]["signature_def"]["signature_def"]["serving_default"]
            same([signature["inputs"]["x"]["dtype"], signature["method_name"]], ["DT_FLOAT", "tensorflow/serving/predict"])
            same([each["size"] for each in signature["outputs"]["y"]["tensor_shape"]["dim"]], ["-1", "3"])

        def predict(world: World, path: str = f"/v1/models/m{base}:predict") -> None:
            same(world.post(path, {"instances": [[1, 2, 3]]}), (200, {"predictions": [[2.0, 4.0, 6.0]]}))

        def classify(world: World, path: str = f"/v1/models/m{base}:classify") -> None:
            wanted = {"result": [[["0", 2.0], ["1", 4.0], ["2", 6.0]]]}
            same(world.post(path, {"examples": [{"x": [1, 2, 3]}]}), (200, wanted))

        def regress(world: World, path: str = f"/v1/models/slow{base.replace('7', '1')}:regress") -> None:
            same(world.post(path, {"examples": [{"seconds": 0.0}, {"seconds": [0.0]}][1:]}, "slow"), (200, {"result": [0.0]}))

        for run in (status, metadata, predict, classify, regress):
            route = f"{'GET' if run in (status, metadata) else 'POST'} {run.__name__}{words}"
            CASES.add(route, run, route)


_add_bases()


@CASES("predict.instances")
def rows_in_every_form(world: World) -> None:
    for rows in ([[1, 2, 3], [4, 5, 6]], [{"x": [1, 2, 3]}, {"x": [4, 5, 6]}]):
        same(world.post("/v1/models/m:predict", {"instances": rows})[1], {"predictions": [[2, 4, 6], [8, 10, 12]]})


@CASES("predict.inputs")
def columns_in_every_form(world: World) -> None:
    for columns in ([[1, 2, 3]], {"x": [[1, 2, 3]]}):
        same(world.post("/v1/models/m:predict", {"inputs": columns})[1], {"outputs": [[2, 4, 6]]})


@CASES("predict.instances", "predict.inputs")
def several_inputs_and_outputs(world: World) -> None:
    row = {"rooms": 2, "area": [50.5], "city": "Oslo", "new": True}
    code, found = world.post("/v1/models/table:predict", {"instances": [row, row]}, "table")
    same([code, found], [200, {"predictions": [{"price": 1250.5, "label": "in Oslo"}] * 2}])
    columns = {name: [value] for name, value in row.items()}
    found = world.post("/v1/models/table:predict", {"inputs": columns}, "table")[1]
    same(found, {"outputs": {"price": [1250.5], "label": ["in Oslo"]}})


@CASES("predict.b64")
def bytes_as_base64(world: World) -> None:
    row = {"rooms": 2, "area": [50.5], "city": {"b64": base64.b64encode(b"\xff\x00").decode()}, "new": False}
    found = world.post("/v1/models/table:predict", {"instances": [row]}, "table")[1]
    same(found["predictions"][0]["label"], {"b64": base64.b64encode(b"in \xff\x00").decode()})


@CASES("predict.signature_name")
def the_only_signature(world: World) -> None:
    asked = {"signature_name": "serving_default", "instances": [[1, 2, 3]]}
    same(world.post("/v1/models/m:predict", asked)[0], 200)


@CASES("predict.signature_name", outcome=REFUSED)
def another_signature(world: World) -> None:
    code, found = world.post("/v1/models/m:predict", {"signature_name": "other", "instances": [[1, 2, 3]]})
    same([code, "serving_default" in found["error"]], [404, True])


def _unusual(found: Any) -> list[Any]:
    return [["nan" if math.isnan(each) else each for each in row] for row in found]


for _size in (1, 3000):

    def _numbers(world: World, size: int = _size) -> None:
        row = b"[NaN, Infinity, -Infinity]"
        rows = b"[" + b",".join([row] * size) + b"]"
        wanted = [["nan", math.inf, -math.inf]] * size
        for body, key in ((b'{"instances": ' + rows + b"}", "predictions"), (b'{"inputs": {"x": ' + rows + b"}}", "outputs")):
            code, found = world.post("/v1/models/m:predict", body)
            same([code, _unusual(found[key]) == wanted], [200, True])

    CASES.add(f"NaN-in-and-out-{_size}", _numbers, "predict.NaN")


@CASES("predict.NaN")
def nan_in_outputs_beside_text(world: World) -> None:
    body = b'{"instances": [{"rooms": 2, "area": [NaN], "city": "null \\" NaN", "new": true},' \
           b'{"rooms": 1, "area": [-Infinity], "city": "x", "new": true}]}'  # fmt: skip
    found = world.post("/v1/models/table:predict", body, "table")[1]["predictions"]
    same([math.isnan(found[0]["price"]), found[0]["label"]], [True, 'in null " NaN'])
    same([found[1]["price"], found[1]["label"]], [-math.inf, "in x"])


@CASES("predict.NaN", outcome=REFUSED)
def nan_where_no_float_is(world: World) -> None:
    body = b'{"instances": [{"rooms": NaN, "area": [1], "city": "x", "new": true}]}'
    code, found = world.post("/v1/models/table:predict", body, "table")
    same([code, "rooms" in found["error"]], [400, True])


@CASES("classify.examples", "classify.context", "classify.signature_name")
def classes_with_a_context(world: World) -> None:
    asked = {"signature_name": "serving_default", "context": {"x": [1, 2, 3]}, "examples": [{}, {"x": [4, 5, 6]}]}
    found = world.post("/v1/models/m:classify", asked)[1]["result"]
    same([each[2][1] for each in found], [6.0, 12.0])


@CASES("regress.examples", "regress.context", "regress.signature_name")
def regression_with_a_context(world: World) -> None:
    asked = {"signature_name": "serving_default", "context": {"seconds": [0.0]}, "examples": [{}, {}]}
    same(world.post("/v1/models/slow:regress", asked, "slow"), (200, {"result": [0.0, 0.0]}))


@CASES("regress.examples", "classify.examples", outcome=REFUSED)
def no_regression_and_no_classes(world: World) -> None:
    code, found = world.post("/v1/models/m:regress", {"examples": [{"x": [1, 2, 3]}]})
    same([code, ":predict" in found["error"]], [400, True])
    code, found = world.post("/v1/models/table:classify", {"examples": [{"rooms": 1}]}, "table")
    same([code, ":predict" in found["error"]], [400, True])


@CASES("GET metrics")
def metrics(world: World) -> None:
    code, found = world.get("/monitoring/prometheus/metrics")
    same([code, found.startswith("# HELP")], [200, True])


_WRONG: dict[str, tuple[str, bytes, int, str]] = {
    "no JSON": ("m:predict", b"{", 400, "JSON"),
    "nothing": ("m:predict", b"{}", 400, "instances"),
    "both": ("m:predict", b'{"instances": [[1,2,3]], "inputs": [[1,2,3]]}', 400, "both"),
    "no rows": ("m:predict", b'{"instances": []}', 400, "empty"),
    "no list": ("m:predict", b'{"instances": 5}', 400, "instances"),
    "the wrong shape": ("m:predict", b'{"instances": [[1,2]]}', 400, "[-1, 3]"),
    "uneven rows": ("m:predict", b'{"instances": [[1,2,3],[1,2]]}', 400, "list of 2"),
    "text": ("m:predict", b'{"instances": [["a","b","c"]]}', 400, "not a number"),
    "an unknown input": ("m:predict", b'{"inputs": {"z": [[1,2,3]]}}', 400, "'z'"),
    "another model": ("other:predict", b'{"instances": [[1,2,3]]}', 404, "'m' is served"),
    "another version": ("m/versions/9:predict", b'{"instances": [[1,2,3]]}', 404, "version 7"),
    "another label": ("m/labels/stable:predict", b'{"instances": [[1,2,3]]}', 404, "stable"),
    "another verb": ("m:train", b"{}", 404, "unknown path"),
}


def _add_wrong() -> None:
    for words, wrong in _WRONG.items():

        def run(world: World, wrong: Any = wrong) -> None:
            code, found = world.post(f"/v1/models/{wrong[0]}", wrong[1])
            same([code, wrong[3] in found["error"]], [wrong[2], True])

        CASES.add(f"error-{words.replace(' ', '-')}", run, "errors", outcome=REFUSED)


_add_wrong()


@CASES("gzip")
def compressed_both_ways(world: World) -> None:
    rows = [[1.0, 2.0, 3.0]] * 1000
    body = json.dumps({"instances": rows}).encode()
    for name, sent in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body))):
        headers = {"Content-Encoding": name, "Accept-Encoding": name}
        code, found = world.post("/v1/models/m:predict", sent, headers=headers)
        same([code, found["predictions"][999]], [200, [2.0, 4.0, 6.0]])
        answer = world._requests.post(f"{world.at['m']}/v1/models/m:predict", data=sent, headers=headers)
        same(answer.headers["content-encoding"], name)
    plain = world._requests.post(f"{world.at['m']}/v1/models/m:predict", data=body, headers={"Accept-Encoding": "identity"})
    same("content-encoding" in plain.headers, False)


def surface() -> set[str]:
    """Return the documented routes and forms."""
    return ROUTES
