"""How a Keras model becomes files: ONNX where Keras can, else a SavedModel."""

from __future__ import annotations

import contextlib
import io

from fairway.runtime.exported import Exported, ask_onnx, ask_savedmodel, in_order, installed, load, tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from fairway.runtime.exported import Way, Ways


def ways(model: Any, example_inputs: Any) -> Ways:
    """See `exporting._ways`."""
    live = _Live(model, example_inputs)
    found: list[Way] = [("onnx", live.to_onnx)] if installed("tf2onnx", "onnx") else []
    return live.arrays, live.ask, [*found, ("savedmodel", live.to_saved)]


class _Live:
    """A model with an example of what it is asked."""

    def __init__(self, model: Any, example: Any) -> None:
        numpy = load("numpy")
        self._model = model
        self._keys = list(example) if isinstance(example, dict) else []
        values = list(example.values()) if self._keys else list(example) if isinstance(example, (tuple, list)) else [example]
        self.arrays = [numpy.asarray(each) for each in values]
        # Asked once: a model that was never called does not know its shapes.
        self._answers = self.ask(self.arrays)

    def ask(self, arrays: list[Any]) -> list[Any]:
        """What the live model answers."""
        numpy = load("numpy")
        given = dict(zip(self._keys, arrays)) if self._keys else arrays if len(arrays) > 1 else arrays[0]
        answer = self._model(given, training=False)
        if isinstance(answer, dict):
            return [numpy.asarray(answer[name]) for name in in_order(answer)]
        return [numpy.asarray(each) for each in (answer if isinstance(answer, (tuple, list)) else [answer])]

    def to_onnx(self, folder: Path) -> Exported:
        """Write ONNX."""
        path = folder / "model.onnx"
        self._export(path, "onnx")
        graph = load("onnx").load(str(path), load_external_data=False).graph
        taken, given = [each.name for each in graph.input], [each.name for each in graph.output]
        return self._exported("onnx", path.name, taken, given, ask_onnx(path, taken))

    def to_saved(self, folder: Path) -> Exported:
        """Write a SavedModel."""
        self._export(folder, "tf_saved_model")
        taken, given, ask = ask_savedmodel(folder)
        return self._exported("savedmodel", "saved_model.pb", taken, given, ask)

    def _export(self, path: Path, format: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._model.export(str(path), format=format, verbose=False)

    def _exported(self, format: str, entry: str, taken: list[str], given: list[str], ask: Any) -> Exported:
        inputs = [tensor(name, each, True) for name, each in zip(taken, self.arrays)]
        return Exported(format, entry, inputs, [tensor(name, each, True) for name, each in zip(given, self._answers)], ask)
