"""How a function of JAX arrays becomes files: ONNX through jax2onnx, or a SavedModel through jax2tf.

JAX has a format of its own (`jax.export`), but nothing that serves without JAX reads it; so it is not written.
"""

from __future__ import annotations

from fairway.runtime.exported import Exported, ExportError, ask_onnx, ask_savedmodel, installed, load, tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from fairway.runtime.exported import Way, Ways


def ways(model: Any, example_inputs: Any) -> Ways:
    """See `exporting._ways`. `model` is a function of arrays with its parameters closed over."""
    if isinstance(example_inputs, dict):
        message = "example_inputs of a JAX function must be an array or a tuple of arrays"
        raise TypeError(message)
    live = _Live(model, list(example_inputs) if isinstance(example_inputs, (tuple, list)) else [example_inputs])
    found: list[Way] = [("onnx", live.to_onnx)] if installed("jax2onnx", "onnx") else []
    found += [("savedmodel", live.to_saved)] if installed("tensorflow") else []
    if not found:
        message = "a JAX function is exported through jax2onnx or tensorflow, and neither is installed here; pip install jax2onnx"
        raise ExportError(message)
    return live.arrays, live.ask, found


class _Live:
    """A function with an example of what it is asked."""

    def __init__(self, model: Any, values: list[Any]) -> None:
        self._model = model
        self.arrays = [load("numpy").asarray(each) for each in values]
        self._names = [f"input_{place}" for place in range(len(values))] if len(values) > 1 else ["input"]
        self._answers = self.ask(self.arrays)

    def ask(self, arrays: list[Any]) -> list[Any]:
        """What the function answers."""
        answer = load("jax").tree_util.tree_leaves(self._model(*arrays))
        return [load("numpy").asarray(each) for each in answer]

    def to_onnx(self, folder: Path) -> Exported:
        """Write ONNX."""
        path = folder / "model.onnx"
        shapes = [("B", *each.shape[1:]) if each.ndim else () for each in self.arrays]
        made = load("jax2onnx").to_onnx(self._model, inputs=shapes)
        load("onnx").save(made, str(path))
        taken, given = [each.name for each in made.graph.input], [each.name for each in made.graph.output]
        return self._exported("onnx", path.name, taken, given, ask_onnx(path, taken))

    def to_saved(self, folder: Path) -> Exported:
        """Write a SavedModel."""
        tensorflow, jax2tf = load("tensorflow"), load("jax.experimental.jax2tf")
        shapes = [f"(b, {', '.join(str(length) for length in each.shape[1:])})" if each.ndim else "()" for each in self.arrays]
        specs = [
            tensorflow.TensorSpec([None, *each.shape[1:]] if each.ndim else [], each.dtype, name=name)
            for name, each in zip(self._names, self.arrays)
        ]
        module = tensorflow.Module()
        converted = jax2tf.convert(self._model, polymorphic_shapes=shapes, with_gradient=False)
        module.f = tensorflow.function(converted, input_signature=specs, autograph=False)
        tensorflow.saved_model.save(module, str(folder), signatures=module.f.get_concrete_function())
        taken, given, ask = ask_savedmodel(folder)
        return self._exported("savedmodel", "saved_model.pb", taken, given, ask)

    def _exported(self, format: str, entry: str, taken: list[str], given: list[str], ask: Any) -> Exported:
        inputs = [tensor(name, each, True) for name, each in zip(taken, self.arrays)]
        return Exported(format, entry, inputs, [tensor(name, each, True) for name, each in zip(given, self._answers)], ask)
