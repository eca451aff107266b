"""ONNX files: inputs and outputs of the graph, and the other files that hold weights."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

from fairway.registry.formats.protobuf import fields, integer, messages, text
from fairway.state.model import ModelSignature, TensorSpec

_MODEL_GRAPH, _MODEL_TRAINING, _MODEL_FUNCTION = 7, 20, 25
_TRAINING_GRAPHS = (1, 2)
_FUNCTION_NODE, _FUNCTION_ATTRIBUTE = 7, 11
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE = 1, 5, 11, 12, 15
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_LOCATION = "location"
"""The key of the entry that names the file of a tensor's content."""
_INFO_NAME, _INFO_TYPE = 1, 2
_TYPE_TENSOR = 1
_TENSOR_TYPE, _TENSOR_SHAPE = 1, 2
_SHAPE_DIMENSION = 1
_DIMENSION_VALUE = 1

_DATATYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "BYTES", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip
_DEEPEST = 32
"""Limit on graphs within graphs; no real model has more."""


def signature(model: memoryview) -> ModelSignature:
    """Return names, types and shapes of the graph's inputs and outputs; weights listed among the inputs are left out."""
    graph = _graph(model)
    weights = {text(tensor, _TENSOR_NAME) for tensor in messages(graph, _GRAPH_INITIALIZER)}
    inputs = tuple(spec for info in messages(graph, _GRAPH_INPUT) if (spec := _spec(info)).name not in weights)
    return ModelSignature(inputs, tuple(_spec(info) for info in messages(graph, _GRAPH_OUTPUT)))


def external_files(model: memoryview) -> set[str]:
    """Return the files that hold weights, as the model names them. A runtime opens them, so they must be checked.

    Every tensor counts, wherever it is: protobuf merges a message that occurs twice, functions have nodes of their own, and
    attributes hold tensors, sparse tensors and graphs.
    """
    return set(_locations_of_model(model))


def names_no_files(model: mmap.mmap | bytes) -> bool:
    """Return whether the bytes alone show that no weights lie in other files: fast, and never true if there are any."""
    return model.find(_LOCATION.encode()) < 0


def _graph(model: memoryview) -> memoryview:
    """Return the graph as protobuf merges it: consecutive messages of one field are their merged message."""
    graphs = list(messages(model, _MODEL_GRAPH))
    return graphs[0] if len(graphs) == 1 else memoryview(b"".join(graphs))


def _locations_of_model(model: memoryview) -> Iterator[str]:
    for number, value in fields(model):
        if not isinstance(value, memoryview):
            continue
        if number == _MODEL_GRAPH:
            yield from _locations(value, 0)
        elif number == _MODEL_TRAINING:
            for field in _TRAINING_GRAPHS:
                for graph in messages(value, field):
                    yield from _locations(graph, 0)
        elif number == _MODEL_FUNCTION:
            for node in messages(value, _FUNCTION_NODE):
                yield from _locations_of_node(node, 0)
            for attribute in messages(value, _FUNCTION_ATTRIBUTE):
                yield from _locations_of_attribute(attribute, 0)


def _locations(graph: memoryview, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        message = "its graphs are nested too deeply"
        raise ValueError(message)
    for number, value in fields(graph):
        if not isinstance(value, memoryview):
            continue
        if number == _GRAPH_INITIALIZER:
            yield from _locations_of_tensor(value)
        elif number == _GRAPH_SPARSE:
            yield from _locations_of_sparse(value)
        elif number == _GRAPH_NODE:
            yield from _locations_of_node(value, depth)


def _locations_of_node(node: memoryview, depth: int) -> Iterator[str]:
    for attribute in messages(node, _NODE_ATTRIBUTE):
        yield from _locations_of_attribute(attribute, depth)


def _locations_of_attribute(attribute: memoryview, depth: int) -> Iterator[str]:
    for number, value in fields(attribute):
        if not isinstance(value, memoryview):
            continue
        if number in _ATTRIBUTE_TENSORS:
            yield from _locations_of_tensor(value)
        elif number in _ATTRIBUTE_SPARSE:
            yield from _locations_of_sparse(value)
        elif number in _ATTRIBUTE_GRAPHS:
            yield from _locations(value, depth + 1)


def _locations_of_sparse(sparse: memoryview) -> Iterator[str]:
    """Yield the files of its values and of its indices."""
    for field in (1, 2):
        for tensor in messages(sparse, field):
            yield from _locations_of_tensor(tensor)


def _locations_of_tensor(tensor: memoryview) -> Iterator[str]:
    for entry in messages(tensor, _TENSOR_EXTERNAL):
        if text(entry, _ENTRY_KEY) == _LOCATION:
            yield text(entry, _ENTRY_VALUE)


def _spec(info: memoryview) -> TensorSpec:
    datatype = ""
    lengths: list[int] = []
    for kind in messages(info, _INFO_TYPE):
        for tensor in messages(kind, _TYPE_TENSOR):
            datatype = _DATATYPES.get(integer(tensor, _TENSOR_TYPE), "")
            dimensions = [item for shape in messages(tensor, _TENSOR_SHAPE) for item in messages(shape, _SHAPE_DIMENSION)]
            # A name instead of a length, or no length, means any length.
            lengths = [integer(dimension, _DIMENSION_VALUE, -1) for dimension in dimensions]
    return TensorSpec(text(info, _INFO_NAME), datatype, tuple(lengths))
