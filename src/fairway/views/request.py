"""A request that works: made from what a model takes."""

from __future__ import annotations

import json
import math
import shlex
from typing import Any

import msgspec

from fairway.state.model import ModelVersion, TensorSpec

SHOWN = 64
"""A body with more numbers than this is not typed by hand: the line reads them from a program instead."""


class ExampleRequest(msgspec.Struct, frozen=True):
    """Where to ask, and what."""

    path: str
    body: str = ""
    """JSON; empty for a GET."""


def example_request(version: ModelVersion) -> ExampleRequest | None:
    """One row of zeros in the Open Inference Protocol; None when it is not known what the model takes."""
    if not version.signature.inputs:
        return None
    inputs = [_tensor(spec) for spec in version.signature.inputs]
    return ExampleRequest(f"/v2/models/{version.name}/infer", json.dumps({"inputs": inputs}, separators=(",", ":")))


def curl_line(url: str, request: ExampleRequest | None, options: str = "") -> str:
    """The request as a line to paste. `options`: what curl needs to be let in, with a blank at the end, or nothing."""
    if request is None:
        return f"curl -s {options}{url}/"
    if not request.body:
        return f"curl -s {options}{url}{request.path}"
    numbers = request.body.count(",")
    if numbers <= SHOWN:
        return f"curl -s {options}{url}{request.path} -d {shlex.quote(request.body)}"
    # Python's own json writes the zeros, so that the line stays short.
    program = f"import json;print(json.dumps(dict(inputs=[{','.join(map(_written, json.loads(request.body)['inputs']))}])))"
    return f"python3 -c {shlex.quote(program)} | curl -s {options}{url}{request.path} -d @-"


def _written(tensor: dict[str, Any]) -> str:
    """The tensor as Python. A name may hold anything; JSON texts are Python texts too."""
    texts = f"name={json.dumps(tensor['name'])},datatype={json.dumps(tensor['datatype'])}"
    return f"dict({texts},shape={tensor['shape']},data=[{tensor['data'][0]!r}]*{len(tensor['data'])})"


def _tensor(spec: TensorSpec) -> dict[str, object]:
    shape = [1 if length < 0 else length for length in spec.shape] or [1]
    value: object = {"BOOL": False, "BYTES": ""}.get(spec.datatype, 0.0 if spec.datatype.startswith(("FP", "BF")) else 0)
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape, "data": [value] * math.prod(shape)}
