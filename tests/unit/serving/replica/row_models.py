"""Small ONNX models: some compute each row independently, others mix the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from small_models import doubler, lookup, save

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
ROWS = ["n", 3]
Make = Callable[[Path], Path]


def _tensor(name: str, shape: list[Any], kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _constant(name: str, value: Any) -> Any:
    return numpy_helper.from_array(np.asarray(value), name)


def _weights(name: str, *shape: int) -> Any:
    return _constant(name, np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape))


def _of(nodes: list[Any], *tensors: Any, shape: list[Any] = ROWS) -> Make:
    return lambda folder: save(folder, nodes, [_tensor("x", shape)], [_tensor("y", shape)], tensors)


_node = helper.make_node
cumulative_sum = _of([_node("CumSum", ["x", "axis"], ["y"])], _constant("axis", np.int64(0)))
batch_mean = _of([_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1), _node("Sub", ["x", "mean"], ["y"])])
softmax_over_rows = _of([_node("Softmax", ["x"], ["y"], axis=0)])
reversed_rows = _of(
    [_node("Slice", ["x", "from", "to", "axes", "step"], ["y"])],
    *(
        _constant(name, np.array([value], np.int64))
        for name, value in (("from", -1), ("to", -(1 << 40)), ("axes", 0), ("step", -1))
    ),
)
sorted_rows = _of(
    [
        _node("Shape", ["x"], ["shape"]),
        _node("Gather", ["shape", "first"], ["count"], axis=0),
        _node("TopK", ["x", "count"], ["y", "at"], axis=0),
    ],
    _constant("first", np.array([0], np.int64)),
)
largest_of_batch = _of([_node("ReduceMax", ["x"], ["most"], axes=[0, 1], keepdims=1), _node("Div", ["x", "most"], ["y"])])
"""Divides by the largest value of the batch, as dynamic quantisation does."""
batch_norm_in_training = _of(
    [
        *(_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1), _node("Sub", ["x", "mean"], ["d"])),
        *(_node("Mul", ["d", "d"], ["s"]), _node("ReduceMean", ["s"], ["variance"], axes=[0], keepdims=1)),
        *(_node("Add", ["variance", "epsilon"], ["v"]), _node("Sqrt", ["v"], ["deviation"])),
        _node("Div", ["d", "deviation"], ["y"]),
    ],
    _constant("epsilon", np.float32(1e-5)),
)
mixes_from_nine_rows = _of(
    [
        _node("Shape", ["x"], ["shape"]),
        _node("Gather", ["shape", "first"], ["count"], axis=0),
        _node("Greater", ["count", "eight"], ["many"]),
        _node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        _node("Cast", ["many"], ["part"], to=FLOAT),
        _node("Mul", ["mean", "part"], ["shift"]),
        _node("Add", ["x", "shift"], ["y"]),
    ],
    _constant("first", np.int64(0)),
    _constant("eight", np.int64(8)),
)
mlp = _of(
    [
        *(_node("MatMul", ["x", "a"], ["h"]), _node("Relu", ["h"], ["r"]), _node("MatMul", ["r", "b"], ["z"])),
        _node("Softmax", ["z"], ["y"], axis=1),
    ],
    _weights("a", 3, 64),
    _weights("b", 64, 3),
)
copies = _of([_node("Identity", ["x"], ["y"])])
whitened = _of([_node("LayerNormalization", ["x", "scale"], ["y"])], _constant("scale", np.ones(3, np.float32)))
logarithm = _of([_node("Log", ["x"], ["y"])])
nothing_but_nan = _of([_node("Exp", ["x"], ["e"]), _node("Neg", ["e"], ["less"]), _node("Sqrt", ["less"], ["y"])])
always_zero = _of([_node("Mul", ["x", "none"], ["y"])], _constant("none", np.float32(0)))
random_noise = _of([_node("RandomNormalLike", ["x"], ["y"])])


def image_mean(folder: Path) -> Path:
    """A convolution, and the mean over the image: height and width are variable."""
    nodes = [
        _node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        _node("GlobalAveragePool", ["c"], ["p"]),
        _node("Flatten", ["p"], ["y"]),
    ]
    return save(folder, nodes, [_tensor("x", ["n", 3, "h", "w"])], [_tensor("y", ["n", 4])], (_weights("w", 4, 3, 3, 3),))


def embedding(folder: Path) -> Path:
    """Token types, of which there are two, and tokens, of which there are five, for a text of any length."""
    nodes = [
        _node("Gather", ["tokens", "i"], ["a"]),
        _node("Gather", ["types", "t"], ["b"]),
        _node("Add", ["a", "b"], ["s"]),
        _node("ReduceMean", ["s"], ["y"], axes=[1], keepdims=0),
    ]
    inputs = [_tensor("i", ["n", "length"], LONG), _tensor("t", ["n", "length"], LONG)]
    return save(folder, nodes, inputs, [_tensor("y", ["n", 4])], (_weights("tokens", 5, 4), _weights("types", 2, 4)))


def texts(folder: Path) -> Path:
    """Returns the texts unchanged."""
    kind = TensorProto.STRING
    return save(folder, [_node("Identity", ["x"], ["y"])], [_tensor("x", ["n", 1], kind)], [_tensor("y", ["n", 1], kind)])


def first_text(folder: Path) -> Path:
    """Returns the first text of the batch for every row."""
    kind = TensorProto.STRING
    nodes = [
        _node("Gather", ["x", "first"], ["one"], axis=0),
        _node("Shape", ["x"], ["shape"]),
        _node("Expand", ["one", "shape"], ["y"]),
    ]
    tensors = (_constant("first", np.array([0], np.int64)),)
    return save(folder, nodes, [_tensor("x", ["n", 1], kind)], [_tensor("y", ["n", 1], kind)], tensors)


def largest_class(folder: Path) -> Path:
    """Returns the index of the largest element, as integers."""
    nodes = [_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)]
    return save(folder, nodes, [_tensor("x", ROWS)], [_tensor("y", ["n"], LONG)])


def one_for_all(folder: Path) -> Path:
    """Returns one row of output for the whole batch."""
    nodes = [_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)]
    return save(folder, nodes, [_tensor("x", ROWS)], [_tensor("y", ["m", 3])], (_constant("axes", np.array([0], np.int64)),))


def two_rows_a_row(folder: Path) -> Path:
    """Returns two rows of output for each row of input."""
    return save(folder, [_node("Concat", ["x", "x"], ["y"], axis=0)], [_tensor("x", ROWS)], [_tensor("y", ["m", 3])])


def fixed_batch(folder: Path) -> Path:
    """Takes exactly four rows."""
    return save(folder, [_node("Abs", ["x"], ["y"])], [_tensor("x", [4, 3])], [_tensor("y", [4, 3])])


def without_rows(folder: Path) -> Path:
    """Returns the sum of all rows."""
    return save(folder, [_node("ReduceSum", ["x"], ["y"], keepdims=0)], [_tensor("x", ROWS)], [_tensor("y", [])])


def only_a_rare_index(folder: Path) -> Path:
    """Takes an index into a table of one element: no two rows can differ."""
    nodes = [_node("Gather", ["table", "i"], ["y"])]
    return save(folder, nodes, [_tensor("i", ["n", 1], LONG)], [_tensor("y", ["n", 1])], (_weights("table", 1),))


INDEPENDENT: dict[str, Make] = {
    "doubler": doubler, "lookup": lookup, "mlp": mlp, "copies": copies, "whitened": whitened, "logarithm": logarithm,
    "image_mean": image_mean, "embedding": embedding, "texts": texts, "largest_class": largest_class,
}  # fmt: skip
MIXING: dict[str, Make] = {
    "cumulative_sum": cumulative_sum, "batch_mean": batch_mean, "softmax_over_rows": softmax_over_rows,
    "reversed_rows": reversed_rows, "sorted_rows": sorted_rows, "largest_of_batch": largest_of_batch,
    "batch_norm_in_training": batch_norm_in_training, "mixes_from_nine_rows": mixes_from_nine_rows, "first_text": first_text,
    "two_rows_a_row": two_rows_a_row,
}  # fmt: skip
FIXED: dict[str, Make] = {"fixed_batch": fixed_batch, "without_rows": without_rows, "one_for_all": one_for_all}
UNKNOWN: dict[str, tuple[Make, str]] = {
    "always_zero": (always_zero, "output 'y' was the same for all rows"),
    "nothing_but_nan": (nothing_but_nan, "output 'y' was the same for all rows"),
    "random_noise": (random_noise, "output 'y' differs when the same row is run twice"),
    "only_a_rare_index": (only_a_rare_index, "the model refused all inputs that were tried"),
}
