"""Example requests that the model accepts unchanged. Values are those of the warm-up: zeros, one row."""

from __future__ import annotations

import math
from typing import Any

from fairway.state.model import ModelSignature, TensorSpec

MOST_ELEMENTS = 4096
"""Maximum elements of an example. Larger inputs get none, because the document would become too large."""


def has_example(signature: ModelSignature) -> bool:
    """Whether an example can be shown."""
    return bool(signature.inputs) and sum(math.prod(shape_of(spec)) for spec in signature.inputs) <= MOST_ELEMENTS


def shape_of(spec: TensorSpec) -> tuple[int, ...]:
    """Return the shape of the example: 1 for every free dimension."""
    return tuple(1 if length < 0 else length for length in spec.shape)


def infer(signature: ModelSignature) -> dict[str, Any]:
    """Return an example for `/v2/models/M/infer`."""
    inputs = [
        {"name": spec.name, "datatype": spec.datatype, "shape": list(shape_of(spec)), "data": _flat(spec)}
        for spec in signature.inputs
    ]
    return {"inputs": inputs}


def predict(signature: ModelSignature, *, batches: bool) -> dict[str, Any]:
    """Return an example for `/v1/models/M:predict`: rows if the first dimension is the batch, otherwise columns."""
    if not batches:
        return {"inputs": {spec.name: _nested(spec, shape_of(spec)) for spec in signature.inputs}}
    if len(signature.inputs) == 1:
        return {"instances": [_nested(signature.inputs[0], shape_of(signature.inputs[0])[1:])]}
    return {"instances": [{spec.name: _nested(spec, shape_of(spec)[1:]) for spec in signature.inputs}]}


def examples(signature: ModelSignature) -> dict[str, Any]:
    """Return an example for `:classify` and `:regress`: the features of one example."""
    return {"examples": [{spec.name: _nested(spec, shape_of(spec)[1:]) for spec in signature.inputs}]}


def _flat(spec: TensorSpec) -> list[Any]:
    return [_zero(spec)] * math.prod(shape_of(spec))


def _nested(spec: TensorSpec, shape: tuple[int, ...]) -> Any:
    value: Any = _zero(spec)
    for length in reversed(shape):
        value = [value] * length
    return value


def _zero(spec: TensorSpec) -> Any:
    if spec.datatype == "BYTES":
        return ""
    if spec.datatype == "BOOL":
        return False
    return 0.0 if spec.datatype.startswith(("FP", "BF")) else 0
