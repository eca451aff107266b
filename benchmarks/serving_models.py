"""The models of the serving benchmark as ONNX files: LeNet-5, and a perceptron of 1.9 million parameters. Not a benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPES = {"lenet": (1, 28, 28), "mlp": (784,)}


def write(name: str, folder: Path) -> Path:
    """Write one of them into its own folder, and return the folder."""
    target = folder / name
    target.mkdir()
    nodes, weights = {"lenet": _lenet, "mlp": _mlp}[name]()
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPES[name]])
    given = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])
    chance = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array((0.05 * chance.standard_normal(shape)).astype(np.float32), key) for key, shape in weights.items()
    ]
    model = helper.make_model(
        helper.make_graph(nodes, name, [taken], [given], tensors), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    onnx.checker.check_model(model)
    onnx.save(model, target / "model.onnx")
    return target


def _lenet() -> tuple[list[onnx.NodeProto], dict[str, tuple[int, ...]]]:
    node = helper.make_node
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["1"], pads=[2, 2, 2, 2]),
        node("Relu", ["1"], ["2"]),
        node("MaxPool", ["2"], ["3"], **pool),
        node("Conv", ["3", "w2", "b2"], ["4"]),
        node("Relu", ["4"], ["5"]),
        node("MaxPool", ["5"], ["6"], **pool),
        node("Flatten", ["6"], ["7"]),
        *_perceptron("7", 3),
    ]
    shapes = ((6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84))
    return nodes, _weights(shapes)


def _mlp() -> tuple[list[onnx.NodeProto], dict[str, tuple[int, ...]]]:
    return _perceptron("x", 1), _weights(((1024, 784), (1024, 1024), (10, 1024)))


def _perceptron(taken: str, first: int) -> list[onnx.NodeProto]:
    """Return the nodes of three layers, with weights numbered from `first` on."""
    node = helper.make_node
    return [
        node("Gemm", [taken, f"w{first}", f"b{first}"], ["p1"], transB=1),
        node("Relu", ["p1"], ["p2"]),
        node("Gemm", ["p2", f"w{first + 1}", f"b{first + 1}"], ["p3"], transB=1),
        node("Relu", ["p3"], ["p4"]),
        node("Gemm", ["p4", f"w{first + 2}", f"b{first + 2}"], ["y"], transB=1),
    ]


def _weights(shapes: tuple[tuple[int, ...], ...]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of each layer's weights and biases."""
    named: dict[str, tuple[int, ...]] = {}
    for number, shape in enumerate(shapes, 1):
        named |= {f"w{number}": shape, f"b{number}": shape[:1]}
    return named
