"""Export a function of JAX arrays: ONNX through jax2onnx, or a SavedModel through jax2tf.

JAX has its own format (`jax.export`), but no server can read it without JAX, so it is not written.
"""

from __future__ import annotations

from functools import partial

from fairway.runtime.model_export.exported_model import (
    ExportedModel,
    ExportError,
    ask_onnx,
    ask_savedmodel,
    in_order,
    installed,
    load,
    tensor,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from fairway.runtime.model_export.exported_model import Way, Ways

_OPSET = 21
"""ONNX opset; onnxruntime supports it since 1.20."""
_BATCH = "batch"


def ways(model: Any, example_inputs: Any) -> Ways:
    """See `exporting._ways`. `model` is a function of arrays with its parameters closed over."""
    if isinstance(example_inputs, dict):
        message = "example_inputs of a JAX function must be an array or a tuple of arrays"
        raise TypeError(message)
    live = _JaxExporter(model, list(example_inputs) if isinstance(example_inputs, (tuple, list)) else [example_inputs])
    # Any batch size before the example's only, and formats that need no framework to serve before those that do.
    methods: list[Way] = []
    for kind, write, needs in (("onnx", live.to_onnx, "jax2onnx"), ("savedmodel", live.to_saved, "tensorflow")):
        if installed(needs):
            methods += [
                (f"{kind} (any batch)", partial(write, any_batch=True)),
                (f"{kind} (this batch)", partial(write, any_batch=False)),
            ]
    if not methods:
        message = "a JAX function is exported through jax2onnx or tensorflow, and neither is installed here; pip install jax2onnx"
        raise ExportError(message)
    return live.arrays, live.ask, methods


class _JaxExporter:
    """A function with example inputs."""

    def __init__(self, model: Any, values: list[Any]) -> None:
        self._model = model
        # Converted as JAX does: it has no double precision unless that is enabled.
        self.arrays = [load("numpy").asarray(load("jax").numpy.asarray(value)) for value in values]
        self._names = [f"input_{index}" for index in range(len(values))] if len(values) > 1 else ["input"]
        self._answers = dict(zip(self._named(*self.arrays), self.ask(self.arrays)))

    def ask(self, arrays: list[Any]) -> list[Any]:
        """Return the answers of the function."""
        return [load("numpy").asarray(output) for output in self._named(*arrays).values()]

    def to_onnx(self, folder: Path, any_batch: bool) -> ExportedModel:
        """Write ONNX."""
        path = folder / "model.onnx"
        struct = load("jax").ShapeDtypeStruct
        onnx_model = load("jax2onnx").to_onnx(
            lambda *arrays: tuple(self._named(*arrays).values()),
            inputs=[struct(_shape(array, _BATCH, any_batch), array.dtype) for array in self.arrays],
            input_names=self._names,
            output_names=list(self._answers),
            opset=_OPSET,
            enable_double_precision=any(array.dtype == "float64" for array in self.arrays),
        )
        load("onnx").save(onnx_model, str(path))
        return self._exported("onnx", path.name, any_batch, ask_onnx(path, self._names))

    def to_saved(self, folder: Path, any_batch: bool) -> ExportedModel:
        """Write a SavedModel."""
        tensorflow, jax2tf = load("tensorflow"), load("jax.experimental.jax2tf")
        shapes = [f"({', '.join(str(length) for length in _shape(array, _BATCH, any_batch))})" for array in self.arrays]
        specs = [
            tensorflow.TensorSpec(_shape(array, None, any_batch), array.dtype, name=name)
            for name, array in zip(self._names, self.arrays)
        ]
        module = tensorflow.Module()
        converted = jax2tf.convert(self._named, polymorphic_shapes=shapes, with_gradient=False)
        module.f = tensorflow.function(converted, input_signature=specs, autograph=False)
        tensorflow.saved_model.save(module, str(folder), signatures=module.f.get_concrete_function())
        input_names, _, ask = ask_savedmodel(folder)
        # Its signature orders the inputs in its own way.
        positions = [self._names.index(name) for name in input_names]
        return self._exported(
            "savedmodel", "saved_model.pb", any_batch, lambda arrays: ask([arrays[array] for array in positions])
        )

    def _named(self, *arrays: Any) -> dict[str, Any]:
        """Return the answers of the function by name: the keys of a dict, or numbers."""
        answer = self._model(*arrays)
        if not isinstance(answer, dict):
            leaves = load("jax").tree_util.tree_leaves(answer)
            answer = {f"output_{index}": leaf for index, leaf in enumerate(leaves)} if len(leaves) > 1 else {"output": leaves[0]}
        return {name: answer[name] for name in in_order(answer)}

    def _exported(self, format: str, entry: str, any_batch: bool, ask: Any) -> ExportedModel:
        inputs = [tensor(name, array, any_batch) for name, array in zip(self._names, self.arrays)]
        return ExportedModel(
            format, entry, inputs, [tensor(name, array, any_batch) for name, array in self._answers.items()], ask
        )


def _shape(array: Any, batch: str | None, any_batch: bool) -> tuple[Any, ...]:
    """Return the shape of an array, with a name for the batch dimension if that may have any length."""
    return (batch, *array.shape[1:]) if any_batch and array.ndim else tuple(array.shape)
