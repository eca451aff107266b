"""What the exporters share: what one has written, how it is described, and how it is asked."""

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
    """Arrays to arrays."""
    Way = tuple[str, Callable[[Path], "Exported"]]
    """What it is called, and the function that writes into a folder."""
    Ways = tuple[list[Any], Ask, list[Way]]
    """The example's arrays, the live model as a function of arrays, and the ways to write it, best first."""


class Exported:
    """What an exporter has written: enough to describe it, and to ask it."""

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
        """Name, datatype and shape of each."""
        self.outputs = outputs
        self.ask = ask
        """Arrays to arrays, as a server would ask it; None where what is needed for that is not installed."""


class ExportError(RuntimeError):
    """The model cannot be exported so that it answers as it does live."""


def tensor(name: str, array: Any, any_batch: bool) -> dict[str, Any]:
    """Name, datatype and shape of an array, in the words of the Open Inference Protocol."""
    kind = str(array.dtype).rpartition(".")[2]
    words = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16", "bool": "BOOL"}
    datatype = words.get(kind, kind.upper() if kind.startswith(("int", "uint")) else "BYTES")
    shape = [int(length) for length in array.shape]
    return {"name": name, "datatype": datatype, "shape": [-1, *shape[1:]] if any_batch and shape else shape}


def ask_onnx(path: Path, inputs: list[str]) -> Ask | None:
    """A function of arrays that asks an ONNX file; None without onnxruntime."""
    if not installed("onnxruntime"):
        return None
    session = load("onnxruntime").InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])

    def ask(arrays: list[Any]) -> list[Any]:
        return list(session.run(None, dict(zip(inputs, arrays))))

    return ask


def ask_savedmodel(folder: Path) -> tuple[list[str], list[str], Ask]:
    """Names of inputs and outputs of a SavedModel, and a function of arrays that asks it."""
    tensorflow = load("tensorflow")
    serve = tensorflow.saved_model.load(os.fspath(folder)).signatures["serving_default"]
    taken, given = list(serve.structured_input_signature[1]), in_order(serve.structured_outputs)

    def ask(arrays: list[Any]) -> list[Any]:
        answer = serve(**{name: tensorflow.constant(each) for name, each in zip(taken, arrays)})
        return [answer[name].numpy() for name in given]

    return taken, given, ask


def in_order(names: Iterable[str]) -> list[str]:
    """Names of tensors in an order that everybody agrees on: by letters, and `output_2` before `output_10`."""

    def place(name: str) -> tuple[str, int]:
        stem = name.rstrip("0123456789")
        return stem, int(name[len(stem) :] or -1)

    return sorted(names, key=place)


def load(module: str) -> Any:
    """A module of the program's own environment, imported when it is needed."""
    return importlib.import_module(module)


def installed(*modules: str) -> bool:
    """Whether all of these can be imported."""
    return all(importlib.util.find_spec(module) is not None for module in modules)
