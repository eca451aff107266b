"""How a function of JAX arrays becomes files: ONNX through jax2onnx, or a SavedModel through jax2tf.

JAX has a format of its own (`jax.export`), but nothing that serves without JAX reads it; so it is not written.
"""

from __future__ import annotations

from functools import partial

from fairway.runtime.exported import Exported, ExportError, ask_onnx, ask_savedmodel, in_order, installed, load, tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from fairway.runtime.exported import Way, Ways

_OPSET = 21
"""Of ONNX; onnxruntime reads it from 1.20 on."""
_BATCH = "batch"


def ways(model: Any, example_inputs: Any) -> Ways:
    """See `exporting._ways`. `model` is a function of arrays with its parameters closed over."""
    if isinstance(example_inputs, dict):
        message = "example_inputs of a JAX function must be an array or a tuple of arrays"
        raise TypeError(message)
    live = _Live(model, list(example_inputs) if isinstance(example_inputs, (tuple, list)) else [example_inputs])
    # Any batch before this one only, and what needs no framework to be served before what does.
    found: list[Way] = []
    for kind, write, needs in (("onnx", live.to_onnx, "jax2onnx"), ("savedmodel", live.to_saved, "tensorflow")):
        if installed(needs):
            found += [
                (f"{kind} (any batch)", partial(write, any_batch=True)),
                (f"{kind} (this batch)", partial(write, any_batch=False)),
            ]
    if not found:
        message = "a JAX function is exported through jax2onnx or tensorflow, and neither is installed here; pip install jax2onnx"
        raise ExportError(message)
    return live.arrays, live.ask, found


class _Live:
    """A function with an example of what it is asked."""

    def __init__(self, model: Any, values: list[Any]) -> None:
        self._model = model
        # As JAX takes them: it has no double precision unless it was asked for.
        self.arrays = [load("numpy").asarray(load("jax").numpy.asarray(each)) for each in values]
        self._names = [f"input_{place}" for place in range(len(values))] if len(values) > 1 else ["input"]
        self._answers = dict(zip(self._named(*self.arrays), self.ask(self.arrays)))

    def ask(self, arrays: list[Any]) -> list[Any]:
        """What the function answers."""
        return [load("numpy").asarray(each) for each in self._named(*arrays).values()]

    def to_onnx(self, folder: Path, any_batch: bool) -> Exported:
        """Write ONNX."""
        path = folder / "model.onnx"
        struct = load("jax").ShapeDtypeStruct
        made = load("jax2onnx").to_onnx(
            lambda *arrays: tuple(self._named(*arrays).values()),
            inputs=[struct(_shape(each, _BATCH, any_batch), each.dtype) for each in self.arrays],
            input_names=self._names,
            output_names=list(self._answers),
            opset=_OPSET,
            enable_double_precision=any(each.dtype == "float64" for each in self.arrays),
        )
        load("onnx").save(made, str(path))
        return self._exported("onnx", path.name, any_batch, ask_onnx(path, self._names))

    def to_saved(self, folder: Path, any_batch: bool) -> Exported:
        """Write a SavedModel."""
        tensorflow, jax2tf = load("tensorflow"), load("jax.experimental.jax2tf")
        shapes = [f"({', '.join(str(length) for length in _shape(each, _BATCH, any_batch))})" for each in self.arrays]
        specs = [
            tensorflow.TensorSpec(_shape(each, None, any_batch), each.dtype, name=name)
            for name, each in zip(self._names, self.arrays)
        ]
        module = tensorflow.Module()
        converted = jax2tf.convert(self._named, polymorphic_shapes=shapes, with_gradient=False)
        module.f = tensorflow.function(converted, input_signature=specs, autograph=False)
        tensorflow.saved_model.save(module, str(folder), signatures=module.f.get_concrete_function())
        taken, _, ask = ask_savedmodel(folder)
        # Its signature has the inputs in an order of its own.
        places = [self._names.index(name) for name in taken]
        return self._exported("savedmodel", "saved_model.pb", any_batch, lambda arrays: ask([arrays[each] for each in places]))

    def _named(self, *arrays: Any) -> dict[str, Any]:
        """What the function answers, by name: the keys of a dict, or numbers."""
        answer = self._model(*arrays)
        if not isinstance(answer, dict):
            leaves = load("jax").tree_util.tree_leaves(answer)
            answer = {f"output_{place}": each for place, each in enumerate(leaves)} if len(leaves) > 1 else {"output": leaves[0]}
        return {name: answer[name] for name in in_order(answer)}

    def _exported(self, format: str, entry: str, any_batch: bool, ask: Any) -> Exported:
        inputs = [tensor(name, each, any_batch) for name, each in zip(self._names, self.arrays)]
        return Exported(format, entry, inputs, [tensor(name, each, any_batch) for name, each in self._answers.items()], ask)


def _shape(array: Any, batch: str | None, any_batch: bool) -> tuple[Any, ...]:
    """The shape of an array, with a word for the length of the batch where that may be any."""
    return (batch, *array.shape[1:]) if any_batch and array.ndim else tuple(array.shape)
