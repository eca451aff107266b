"""Small ONNX models of every datatype, each with inputs and the predictions of onnxruntime itself."""

import numpy as np
import onnx
import onnxruntime
from kept import keep, made
from onnx import TensorProto, helper

RANDOM = np.random.default_rng(0)
TYPES = {
    "bool": TensorProto.BOOL, "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16, "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64, "int8": TensorProto.INT8, "int16": TensorProto.INT16, "int32": TensorProto.INT32,
    "int64": TensorProto.INT64, "float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE,
    "object": TensorProto.STRING,
}  # fmt: skip


def values(dtype, shape):
    if dtype == "object":
        return np.array([f"text {number} é" for number in range(int(np.prod(shape)))], object).reshape(shape)
    if dtype == "bool":
        return RANDOM.random(shape) > 0.5
    if dtype.startswith("float"):
        return RANDOM.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def write(name, nodes, inputs, outputs, constants=(), **more):
    """A model of these nodes; inputs and outputs are (name, datatype, shape)."""
    told = [[helper.make_tensor_value_info(*each) for each in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, name, *told, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    path = made(name) / "model.onnx"
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(str(path))
    names = [each[0] for each in outputs]
    lengths = {"n": 8, "w": 5}
    asked = {given: values(_dtype(kind), [lengths.get(each, each) for each in shape]) for given, kind, shape in inputs}
    keep(name, asked, lambda rows: dict(zip(names, session.run(names, rows), strict=True)), **more)


def _dtype(kind):
    return next(name for name, number in TYPES.items() if number == kind)


for dtype, kind in TYPES.items():
    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=1)
    write(f"onnx-{dtype}", [node], [("x", kind, ["n", 3])], [("y", kind, ["n", 6])])
axis = helper.make_tensor("axis", TensorProto.INT64, [], [0])
write(
    "onnx-mixing",
    [helper.make_node("CumSum", ["x", "axis"], ["y"])],
    [("x", TensorProto.FLOAT, ["n", 3])],
    [("y", TensorProto.FLOAT, ["n", 3])],
    [axis],
)
mean = [helper.make_node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1), helper.make_node("Sub", ["x", "m"], ["y"])]
write("onnx-batch-mean", mean, [("x", TensorProto.FLOAT, ["n", 3])], [("y", TensorProto.FLOAT, ["n", 3])])
write(
    "onnx-fixed",
    [helper.make_node("Relu", ["x"], ["y"])],
    [("x", TensorProto.FLOAT, [2, 3])],
    [("y", TensorProto.FLOAT, [2, 3])],
    fixed=True,
)
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
several = [helper.make_node("Softmax", ["x"], ["s"], axis=1), helper.make_node("Cast", ["y"], ["t"], to=DOUBLE)]
taken = [("x", FLOAT, ["n", "w"]), ("y", TensorProto.INT32, ["n"])]
write("onnx-dynamic", several, taken, [("s", FLOAT, ["n", "w"]), ("t", DOUBLE, ["n"])])

CLASS = """
import numpy as np
class Model:
    signature = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    }
    def predict(self, inputs):
        return {"y": inputs["x"].sum(1)}
"""
(made("python-class") / "model.py").write_text(CLASS)
keep("python-class", {"x": values("float32", (8, 3))}, lambda given: {"y": given["x"].sum(1)})
