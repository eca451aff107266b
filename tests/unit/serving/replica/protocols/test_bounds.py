"""Oversized requests: 400 with a message, at a cost limited by the size of the request."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from small_models import Told, app_of, ask, served, signature

from fairway.serving.replica.model.served_model import InferenceRequest
from fairway.serving.replica.protocols.open_inference import OpenInferenceCodec
from fairway.serving.replica.request_error import RequestError

NUMBERS = [
    "1" * 400, "-" + "1" * 400, "1" * 5000, "1e999", "NaN", '"NaN"', "Infinity", "1." + "1" * 5000, "18446744073709551616",
    "null", '"\\ud800"', "{}", "[]", "[" * 2000 + "]" * 2000,
]  # fmt: skip
SHAPES = [
    [0, 10**30], [10**30, 0], [2**62, 0], [0, 2**62], [2**40, 2**40], [-1, 3], [1, -3], [-(2**63), 3], [2**62, 4], [1] * 500,
    [5000, 0], [10**400, 3],
]  # fmt: skip
DATATYPES = ["FP16", "FP32", "FP64", "BF16", "INT8", "INT64", "UINT64", "BOOL", "BYTES"]


def app_for(datatype: str, row: int = 3) -> Any:
    return app_of(Told(signature(x=(datatype, [-1, row]), out_y=(datatype, [-1, row])), lambda inputs: inputs))


@pytest.mark.parametrize("datatype", DATATYPES)
async def test_numbers_that_fit_nothing(datatype: str) -> None:
    app = app_for(datatype)
    for number in NUMBERS:
        tensor = '{"name": "x", "datatype": "%s", "shape": [1, 3], "data": %s}'
        for path, body in (
            ("/v1/models/m:predict", '{"instances": [[' + number + ", 1, 2]]}"),
            ("/v1/models/m:predict", '{"inputs": [[' + number + ", 1, 2]]}"),
            ("/v1/models/m:classify", '{"examples": [{"x": [' + number + ", 1, 2]}]}"),
            ("/v2/models/m/infer", '{"inputs": [%s]}' % (tensor % (datatype, f"[{number}, 1, 2]"))),
            ("/v2/models/m/infer", '{"inputs": [%s]}' % (tensor % (datatype, f"[[{number}, 1, 2]]"))),
            ("/v2/models/m/infer", '{"inputs": [%s]}' % (tensor.replace("[1, 3]", f"[{number}, 3]") % (datatype, "[1]"))),
        ):
            status, answer, _ = await ask(app, "POST", path, body.encode())
            assert status < 500, (datatype, number[:20], path, answer)


@pytest.mark.parametrize("row", [3, -1])
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES"])
async def test_shapes_that_no_body_fills(datatype: str, row: int) -> None:
    app = app_for(datatype, row)
    for shape in SHAPES:
        tensor: dict[str, Any] = {"name": "x", "datatype": datatype, "shape": shape}
        status, answer, _ = await ask(app, "POST", "/v2/models/m/infer", {"inputs": [{**tensor, "data": []}]})
        assert status == 400, (shape, answer)
        assert len(answer["error"]) < 500
        binary = {"inputs": [{**tensor, "parameters": {"binary_data_size": 0}}]}
        head = json.dumps(binary).encode()
        lengths = {"inference-header-content-length": str(len(head))}
        assert (await ask(app, "POST", "/v2/models/m/infer", head, lengths))[0] == 400
    status, answer, _ = await ask(app_for("FP32", -1), "POST", "/v1/models/m:predict", {"instances": [[]] * 5000})
    assert (status, "rows without elements" in answer["error"]) == (400, True)
    assert (await ask(app_for("FP32", -1), "POST", "/v1/models/m:predict", {"instances": [[]] * 3}))[0] == 200


def many(outputs: int) -> OpenInferenceCodec:
    tensors = {f"out_y{place}": ("FP32", [-1]) for place in range(outputs)}
    return OpenInferenceCodec(served(signature(x=("FP32", [-1]), **tensors)))


def wanting(names: list[str]) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
    return json.dumps({"inputs": [tensor], "outputs": [{"name": name} for name in names]}).encode()


def test_outputs_are_asked_for_once_each() -> None:
    form = many(3)
    assert form.read(wanting(["y2", "y0"]), None).wanted == ((2, False), (0, False))
    for names, words in ((["y0"] * 4, "asks for 4 outputs"), (["y0", "y0"], "requested twice"), (["y0"] * 100_000, "asks for")):
        with pytest.raises(RequestError, match=words) as refused:
            form.read(wanting(names), None)
        assert refused.value.status == 400
    inputs = b'{"inputs": [' + b",".join([b'{"name":"x","datatype":"FP32","shape":[1],"data":[1]}'] * 50_000) + b"]}"
    with pytest.raises(RequestError, match="the request has 50000 inputs"):
        form.read(inputs, None)


def test_orders_of_outputs_fill_no_memory() -> None:
    form = many(6)
    outputs = [np.zeros(1, np.float32)] * 6
    for order in itertools.permutations(range(6)):
        question = InferenceRequest([outputs[0]], 1, wanted=tuple((place, False) for place in order))
        assert b'"y5"' in form.write(question, outputs).body
    assert len(form._frames) == 1
    for rows in range(2000):
        form.write(InferenceRequest([outputs[0]], 1, wanted=((0, False),)), [np.zeros(rows, np.float32)] * 6)
    assert len(form._frames) <= 256
