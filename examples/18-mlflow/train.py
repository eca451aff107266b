"""Train a small model on real digits and log it to MLflow, without any use of Fairway."""

import argparse

import mlflow
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

options = argparse.ArgumentParser()
options.add_argument("--lr", type=float, default=0.1)
options.add_argument("--epochs", type=int, default=30)
arguments = options.parse_args()

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
train, held_out = slice(0, 1500), slice(1500, None)


def softmax(scores):
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def as_onnx(weights, bias):
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["image", "weights", "bias"], ["scores"]), helper.make_node("Softmax", ["scores"], ["digit"])],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("digit", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(bias, "bias")],
    )
    # Versions that one-year-old servers can read.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


mlflow.set_experiment("Handwritten digits")
with mlflow.start_run(run_name="softmax regression"):
    mlflow.log_params(vars(arguments))
    mlflow.set_tag("data", "scikit-learn digits")
    weights, bias = np.zeros((64, 10), np.float32), np.zeros(10, np.float32)
    for epoch in range(1, arguments.epochs + 1):
        for begin in range(0, 1500, 50):
            x, y = images[begin : begin + 50], np.eye(10, dtype=np.float32)[labels[begin : begin + 50]]
            error = (softmax(x @ weights + bias) - y) / len(x)
            weights, bias = weights - arguments.lr * (x.T @ error), bias - arguments.lr * error.sum(axis=0)
        guesses = softmax(images[held_out] @ weights + bias)
        loss = -np.log(guesses[np.arange(len(guesses)), labels[held_out]] + 1e-9).mean()
        accuracy = (guesses.argmax(axis=1) == labels[held_out]).mean()
        mlflow.log_metrics({"loss": float(loss), "accuracy": float(accuracy)}, step=epoch)
    mlflow.log_text(f"{accuracy:.3f} of {len(guesses)} digits\n", "report/summary.txt")
    model = as_onnx(weights, bias)
    onnx.checker.check_model(model)
    mlflow.onnx.log_model(model, name="model", registered_model_name="digits", pip_requirements=["onnx"])
