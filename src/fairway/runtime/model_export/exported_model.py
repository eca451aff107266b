"""Code shared by the exporters: the description of an exported model, and functions to run it."""

from __future__ import annotations

import importlib
import importlib.util
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import Any

    Ask = Callable[[list[Any]], list[Any]]
    """A function from arrays to arrays."""
    Way = tuple[str, Callable[[Path], "ExportedModel"]]
    """Name of the export method, and the function that writes into a folder."""
    Ways = tuple[list[Any], Ask, list[Way]]
    """The example's arrays, the live model as a function of arrays, and the export methods, best first."""


class ExportedModel:
    """An exported model: its description, and a function to run it."""

    def __init__(
        self,
        format: str,
        entry: str,
        inputs: list[dict[str, Any]],
        outputs: list[dict[str, Any]],
        ask: Ask | None,
    ) -> None:
        self.format = format
        self.entry = entry
        self.inputs = inputs
        """Name, datatype and shape of each input."""
        self.outputs = outputs
        self.ask = ask
        """A function from arrays to arrays that runs the model as a server would; None if the required packages are not
        installed."""


class ExportError(RuntimeError):
    """Raised when the model cannot be exported so that it gives the same answers as the live model."""


def tensor(name: str, array: Any, any_batch: bool) -> dict[str, Any]:
    """Return name, datatype and shape of an array, in the terms of the Open Inference Protocol."""
    kind = str(array.dtype).rpartition(".")[2]
    datatypes = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16", "bool": "BOOL"}
    datatype = datatypes.get(kind, kind.upper() if kind.startswith(("int", "uint")) else "BYTES")
    shape = [int(length) for length in array.shape]
    return {"name": name, "datatype": datatype, "shape": [-1, *shape[1:]] if any_batch and shape else shape}


def ask_onnx(path: Path, inputs: list[str]) -> Ask | None:
    """Return a function of arrays that runs an ONNX file; None without onnxruntime."""
    if not installed("onnxruntime"):
        return None
    session = load("onnxruntime").InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])

    def ask(arrays: list[Any]) -> list[Any]:
        return list(session.run(None, dict(zip(inputs, arrays))))

    return ask


def ask_savedmodel(folder: Path) -> tuple[list[str], list[str], Ask]:
    """Return the input and output names of a SavedModel, and a function of arrays that runs it."""
    tensorflow = load("tensorflow")
    serve = tensorflow.saved_model.load(os.fspath(folder)).signatures["serving_default"]
    input_names, output_names = list(serve.structured_input_signature[1]), in_order(serve.structured_outputs)

    def ask(arrays: list[Any]) -> list[Any]:
        answer = serve(**{name: tensorflow.constant(array) for name, array in zip(input_names, arrays)})
        return [answer[name].numpy() for name in output_names]

    return input_names, output_names, ask


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of tensors in a canonical order: alphabetically, and `output_2` before `output_10`."""

    def place(name: str) -> tuple[str, int]:
        stem = name.rstrip("0123456789")
        return stem, int(name[len(stem) :] or -1)

    return sorted(names, key=place)


def load(module: str) -> Any:
    """Import a module of the program's own environment when it is needed."""
    return importlib.import_module(module)


def installed(*modules: str) -> bool:
    """Return whether all of these modules can be imported."""
    return all(importlib.util.find_spec(module) is not None for module in modules)
