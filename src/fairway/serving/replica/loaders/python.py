"""Python classes as models."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

import numpy as np


class PythonClassModel:
    """The class `Model` of a file: `load(folder)`, `predict(inputs)`, `generate(prompt, options)`, `embed(texts)`, `count(text)`.

    Each method is optional.
    """

    platform = "python"

    def __init__(self, order: Any) -> None:
        folder = os.path.dirname(os.path.abspath(order.entry))
        sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location("model", order.entry)
        if spec is None or spec.loader is None:
            raise ValueError(f"{order.entry} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules["model"] = module
        spec.loader.exec_module(module)
        if not hasattr(module, "Model"):
            raise ValueError(f"{order.entry} has no class Model")
        self.model = module.Model()
        if hasattr(self.model, "load"):
            self.model.load(folder)
        signature = getattr(self.model, "signature", None) or {}
        self.inputs: list[dict[str, Any]] = list(signature.get("inputs", ()))
        self.outputs: list[dict[str, Any]] = list(signature.get("outputs", ()))

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Call `predict` of the class, with inputs and outputs by name."""
        named = {spec["name"]: array for spec, array in zip(self.inputs, inputs)}
        outputs = self.model.predict(named)
        missing = [spec["name"] for spec in self.outputs if spec["name"] not in outputs]
        if missing:
            raise KeyError(f"predict returned {sorted(outputs)} without {missing}")
        return [np.asarray(outputs[spec["name"]]) for spec in self.outputs]


def load(order: Any) -> PythonClassModel:
    """Load the class."""
    return PythonClassModel(order)
