"""Example requests, made from a model's signature."""

from __future__ import annotations

import json
import math
import shlex
from typing import Any

import msgspec

from fairway.state.model import ModelVersion, TensorSpec

SHOWN = 64
"""Number of values above which the command generates the body with Python instead of including it."""


class ExampleRequest(msgspec.Struct, frozen=True):
    """The path and body of a request."""

    path: str
    body: str = ""
    """JSON; empty for a GET request."""


def example_request(version: ModelVersion) -> ExampleRequest | None:
    """Return one row of zeros in the Open Inference Protocol; None if the model has no known inputs."""
    if not version.signature.inputs:
        return None
    inputs = [_tensor(spec) for spec in version.signature.inputs]
    return ExampleRequest(f"/v2/models/{version.name}/infer", json.dumps({"inputs": inputs}, separators=(",", ":")))


def curl_line(url: str, request: ExampleRequest | None, options: str = "") -> str:
    """Return the request as a command to paste. `options` are curl's access options with a trailing blank, or empty."""
    if request is None:
        return f"curl -s {options}{url}/"
    if not request.body:
        return f"curl -s {options}{url}{request.path}"
    numbers = request.body.count(",")
    if numbers <= SHOWN:
        return f"curl -s {options}{url}{request.path} -d {shlex.quote(request.body)}"
    # Python generates the zeros, so that the command stays short.
    program = f"import json;print(json.dumps(dict(inputs=[{','.join(map(_written, json.loads(request.body)['inputs']))}])))"
    return f"python3 -c {shlex.quote(program)} | curl -s {options}{url}{request.path} -d @-"


def _written(tensor: dict[str, Any]) -> str:
    """Return the tensor as a Python expression. Names may hold any character; JSON strings are valid Python strings."""
    texts = f"name={json.dumps(tensor['name'])},datatype={json.dumps(tensor['datatype'])}"
    return f"dict({texts},shape={tensor['shape']},data=[{tensor['data'][0]!r}]*{len(tensor['data'])})"


def _tensor(spec: TensorSpec) -> dict[str, object]:
    shape = [1 if length < 0 else length for length in spec.shape] or [1]
    value: object = {"BOOL": False, "BYTES": ""}.get(spec.datatype, 0.0 if spec.datatype.startswith(("FP", "BF")) else 0)
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape, "data": [value] * math.prod(shape)}
