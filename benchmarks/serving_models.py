"""The models of the serving benchmark, as ONNX files: LeNet-5, and a perceptron of 1.9 million parameters. Not a benchmark by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPES = {"lenet": (1, 28, 28), "mlp": (784,)}


def write(name: str, folder: Path) -> Path:
    """Write one of them into a folder of its own; the folder."""
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
        node("Conv", ["x", "w1", "b1"], ["1"], pads=[2, 2, 2, 2]), node("Relu", ["1"], ["2"]), node("MaxPool", ["2"], ["3"], **pool),
        node("Conv", ["3", "w2", "b2"], ["4"]), node("Relu", ["4"], ["5"]), node("MaxPool", ["5"], ["6"], **pool),
        node("Flatten", ["6"], ["7"]), node("Gemm", ["7", "w3", "b3"], ["8"], transB=1), node("Relu", ["8"], ["9"]),
        node("Gemm", ["9", "w4", "b4"], ["10"], transB=1), node("Relu", ["10"], ["11"]), node("Gemm", ["11", "w5", "b5"], ["y"], transB=1),
    ]  # fmt: skip
    weights: dict[str, tuple[int, ...]] = {
        "w1": (6, 1, 5, 5), "b1": (6,), "w2": (16, 6, 5, 5), "b2": (16,), "w3": (120, 400), "b3": (120,),
        "w4": (84, 120), "b4": (84,), "w5": (10, 84), "b5": (10,),
    }  # fmt: skip
    return nodes, weights


def _mlp() -> tuple[list[onnx.NodeProto], dict[str, tuple[int, ...]]]:
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["1"], transB=1), node("Relu", ["1"], ["2"]), node("Gemm", ["2", "w2", "b2"], ["3"], transB=1),
        node("Relu", ["3"], ["4"]), node("Gemm", ["4", "w3", "b3"], ["y"], transB=1),
    ]  # fmt: skip
    weights: dict[str, tuple[int, ...]] = {
        "w1": (1024, 784), "b1": (1024,), "w2": (1024, 1024), "b2": (1024,), "w3": (10, 1024), "b3": (10,),
    }  # fmt: skip
    return nodes, weights
