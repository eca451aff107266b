"""TensorFlow's SavedModel: inputs and outputs of the serving signature."""

from __future__ import annotations

from collections.abc import Iterator

from fairway.registry.formats.protobuf import integer, messages, text
from fairway.state.model import ModelSignature, TensorSpec

_SAVED_GRAPH = 2
_GRAPH_SIGNATURE = 5
_KEY, _VALUE = 1, 2
_SIGNATURE_INPUT, _SIGNATURE_OUTPUT = 1, 2
_TENSOR_TYPE, _TENSOR_SHAPE = 2, 3
_SHAPE_DIMENSION, _DIMENSION_SIZE = 2, 1

_DATATYPES = {
    1: "FP32", 2: "FP64", 3: "INT32", 4: "UINT8", 5: "INT16", 6: "INT8", 7: "BYTES", 9: "INT64", 10: "BOOL",
    14: "BF16", 17: "UINT16", 19: "FP16", 22: "UINT32", 23: "UINT64",
}  # fmt: skip
_PREFERRED = ("serving_default", "serve")
_INTERNAL = "__saved_model"


def signature(model: memoryview) -> ModelSignature:
    """Return names, types and shapes of `serving_default`, else of the first signature; empty if the model has none."""
    signatures = {name: value for graph in messages(model, _SAVED_GRAPH) for name, value in _map(graph, _GRAPH_SIGNATURE)}
    served = [name for name in (*_PREFERRED, *sorted(signatures)) if name in signatures and not name.startswith(_INTERNAL)]
    if not served:
        return ModelSignature()
    chosen = signatures[served[0]]
    return ModelSignature(_specs(chosen, _SIGNATURE_INPUT), _specs(chosen, _SIGNATURE_OUTPUT))


def _specs(chosen: memoryview, number: int) -> tuple[TensorSpec, ...]:
    return tuple(sorted((_spec(name, info) for name, info in _map(chosen, number)), key=lambda spec: spec.name))


def _map(message: memoryview, number: int) -> Iterator[tuple[str, memoryview]]:
    for entry in messages(message, number):
        value = memoryview(b"")
        for content in messages(entry, _VALUE):
            value = content
        yield text(entry, _KEY), value


def _spec(name: str, info: memoryview) -> TensorSpec:
    shape = tuple(
        integer(dimension, _DIMENSION_SIZE)
        for shape_message in messages(info, _TENSOR_SHAPE)
        for dimension in messages(shape_message, _SHAPE_DIMENSION)
    )
    return TensorSpec(name, _DATATYPES.get(integer(info, _TENSOR_TYPE), ""), shape)
