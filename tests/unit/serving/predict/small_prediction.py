"""A small model to predict with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def doubler(folder: Path) -> None:
    """Save a model: `y = 2 x`, rows of three."""
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "doubler", [x], [y], [two])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")


def made(folder: Path, operator: str, rows: int | str = "n", gives: tuple[int | str, ...] = ("n", 3), **how: int) -> None:
    """Save a model: `y` is one operator applied to `x`; `rows` is the number of rows that it takes at once."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, gives)
    zero = numpy_helper.from_array(np.array(0, np.int64), "zero")
    taken = ["x", "zero"] if operator == "CumSum" else ["x"]
    graph = helper.make_graph([helper.make_node(operator, taken, ["y"], **how)], "made", [x], [y], [zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
