"""JSON Schemas of requests and answers, with the model's names, types and shapes. Pure."""

from __future__ import annotations

from typing import Any

from fairway.serving.replica.model.served_model import ServedModel
from fairway.state.model import TensorSpec

_WHOLE = frozenset({"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"})


def components(model: ServedModel) -> dict[str, Any]:
    """Return all schemas by name."""
    inputs = model.signature.inputs
    schemas: dict[str, Any] = {
        "Error": {
            "type": "object",
            "properties": {"error": {"description": "What is wrong and how to fix it; an object on OpenAI's routes."}},
        },
        "Object": {"type": "object"},
    }
    if not inputs:
        return schemas
    return schemas | _openinference(model) | _tfserving(inputs)


def _openinference(model: ServedModel) -> dict[str, Any]:
    inputs, outputs = model.signature.inputs, model.signature.outputs
    return {
        "InferRequest": {
            "type": "object",
            "required": ["inputs"],
            "properties": {
                "id": {"type": "string", "description": "Returned with the answer."},
                "parameters": {"type": "object"},
                "inputs": {"type": "array", "items": {"oneOf": [_tensor(spec, sent=True) for spec in inputs]}},
                "outputs": {
                    "type": "array",
                    "description": "The outputs to return; default: all.",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"enum": [spec.name for spec in outputs]}, "parameters": {"type": "object"}},
                    },
                },
            },
        },
        "InferAnswer": {
            "type": "object",
            "required": ["model_name", "outputs"],
            "properties": {
                "model_name": {"const": model.name},
                "model_version": {"const": model.version},
                "id": {"type": "string"},
                "outputs": {"type": "array", "items": {"anyOf": [_tensor(spec, sent=False) for spec in outputs]}},
            },
        },
    }


def _tfserving(inputs: tuple[TensorSpec, ...]) -> dict[str, Any]:
    by_name = {spec.name: {"description": _words(spec)} for spec in inputs}
    return {
        "PredictRequest": {
            "type": "object",
            "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
            "properties": {
                "signature_name": {"const": "serving_default"},
                "instances": {"type": "array", "description": "Rows: the value of the input, or an object by name of inputs."},
                "inputs": {
                    "description": "Columns: the value of the input with all its rows, or an object by name of inputs.",
                    "anyOf": [{"type": "object", "properties": by_name}, {"type": "array"}],
                },
            },
        },
        "PredictAnswer": {"type": "object", "properties": {"predictions": {"type": "array"}, "outputs": {}}},
        "ExamplesRequest": {
            "type": "object",
            "required": ["examples"],
            "properties": {
                "signature_name": {"const": "serving_default"},
                "context": {"type": "object", "description": "Features shared by all examples."},
                "examples": {"type": "array", "items": {"type": "object", "properties": by_name}},
            },
        },
        "ResultAnswer": {"type": "object", "required": ["result"], "properties": {"result": {"type": "array"}}},
    }


def _tensor(spec: TensorSpec, *, sent: bool) -> dict[str, Any]:
    return {
        "type": "object",
        "description": _words(spec),
        "required": ["name", "datatype", "shape"] if sent else ["name"],
        "properties": {
            "name": {"const": spec.name},
            "datatype": {"const": spec.datatype},
            "shape": _shape(spec),
            "parameters": {"type": "object"},
            "data": {"type": "array", "description": "Flat, or nested as the shape.", "items": _element(spec)},
        },
    }


def _shape(spec: TensorSpec) -> dict[str, Any]:
    lengths = [{"type": "integer", "minimum": 0} if length < 0 else {"const": length} for length in spec.shape]
    array: dict[str, Any] = {"type": "array", "minItems": len(lengths), "maxItems": len(lengths)}
    return {**array, "prefixItems": lengths} if lengths else array


def _element(spec: TensorSpec) -> dict[str, Any]:
    if spec.datatype == "BYTES":
        element: dict[str, Any] = {"type": ["string", "object"]}
    elif spec.datatype == "BOOL":
        element = {"type": "boolean"}
    else:
        # Values that JSON cannot represent (NaN, infinity) are null.
        element = {"type": "integer"} if spec.datatype in _WHOLE else {"type": ["number", "null"]}
    return {"anyOf": [element, {"type": "array"}]}


def _words(spec: TensorSpec) -> str:
    lengths = ", ".join("any" if length < 0 else str(length) for length in spec.shape)
    return f"{spec.name}: {spec.datatype}[{lengths}]"
