"""Export a Keras model: ONNX if Keras supports it, else a SavedModel."""

from __future__ import annotations

import contextlib
import io

from fairway.runtime.model_export.exported_model import ExportedModel, ask_onnx, ask_savedmodel, in_order, installed, load, tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from fairway.runtime.model_export.exported_model import Way, Ways


def ways(model: Any, example_inputs: Any) -> Ways:
    """See `exporting._ways`."""
    live = _KerasExporter(model, example_inputs)
    onnx_method: list[Way] = [("onnx", live.to_onnx)] if installed("tf2onnx", "onnx") else []
    return live.arrays, live.ask, [*onnx_method, ("savedmodel", live.to_saved)]


class _KerasExporter:
    """A model with example inputs."""

    def __init__(self, model: Any, example: Any) -> None:
        numpy = load("numpy")
        self._model = model
        self._keys = list(example) if isinstance(example, dict) else []
        values = list(example.values()) if self._keys else list(example) if isinstance(example, (tuple, list)) else [example]
        self.arrays = [numpy.asarray(value) for value in values]
        # Called once, because a model that was never called does not have its shapes.
        self._answers = self.ask(self.arrays)

    def ask(self, arrays: list[Any]) -> list[Any]:
        """Return the answers of the live model."""
        numpy = load("numpy")
        inputs = dict(zip(self._keys, arrays)) if self._keys else arrays if len(arrays) > 1 else arrays[0]
        answer = self._model(inputs, training=False)
        if isinstance(answer, dict):
            return [numpy.asarray(answer[name]) for name in in_order(answer)]
        return [numpy.asarray(output) for output in (answer if isinstance(answer, (tuple, list)) else [answer])]

    def to_onnx(self, folder: Path) -> ExportedModel:
        """Write ONNX."""
        path = folder / "model.onnx"
        self._export(path, "onnx")
        graph = load("onnx").load(str(path), load_external_data=False).graph
        input_names, output_names = (
            [tensor_info.name for tensor_info in graph.input],
            [tensor_info.name for tensor_info in graph.output],
        )
        return self._exported("onnx", path.name, input_names, output_names, ask_onnx(path, input_names))

    def to_saved(self, folder: Path) -> ExportedModel:
        """Write a SavedModel."""
        self._export(folder, "tf_saved_model")
        input_names, output_names, ask = ask_savedmodel(folder)
        return self._exported("savedmodel", "saved_model.pb", input_names, output_names, ask)

    def _export(self, path: Path, format: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._model.export(str(path), format=format, verbose=False)

    def _exported(self, format: str, entry: str, taken: list[str], given: list[str], ask: Any) -> ExportedModel:
        inputs = [tensor(name, array, True) for name, array in zip(taken, self.arrays)]
        return ExportedModel(format, entry, inputs, [tensor(name, array, True) for name, array in zip(given, self._answers)], ask)
