"""Keras models, with the installed backend."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np

_BACKENDS = ("tensorflow", "torch", "jax")


class KerasModel:
    """A model whose inputs and outputs Keras can describe."""

    platform = "keras"

    def __init__(self, order: Any) -> None:
        backend = _choose_backend()
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        if order.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        _bound(backend, order.threads)
        import keras  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

        self._keras = keras
        self._words = order.words
        self._model = keras.models.load_model(order.entry, compile=False, safe_mode=not order.trusted)
        inputs = getattr(self._model, "inputs", None)
        self.inputs: list[dict[str, Any]] = order.written["inputs"] or [
            self._told(tensor.name, tensor) for tensor in inputs or ()
        ]
        if not self.inputs:
            raise ValueError("a model of a custom class does not declare its inputs; write them into fairway.json beside it")
        outputs = getattr(self._model, "outputs", None)
        names = list(getattr(self._model, "output_names", None) or ())
        if not names and outputs and len(outputs) == 1 and isinstance(self._model, keras.Sequential):
            names = [self._model.layers[-1].name]
        if outputs and len(set(names)) == len(outputs):
            self.outputs = [self._told(name, tensor) for name, tensor in zip(names, outputs)]
        else:
            self.outputs = order.outputs(self.inputs, self.predict)

    def _told(self, name: str, tensor: Any) -> dict[str, Any]:
        datatype = self._words[self._keras.backend.standardize_dtype(tensor.dtype)]
        return {"name": name, "datatype": datatype, "shape": [-1 if length is None else length for length in tensor.shape]}

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Run the model."""
        tensors = [self._given(spec, array) for spec, array in zip(self.inputs, inputs)]
        outputs = self._model(tensors[0] if len(tensors) == 1 else tensors, training=False)
        return [self._plain(output) for output in self._keras.tree.flatten(outputs)]

    def _given(self, told: dict[str, Any], array: Any) -> Any:
        if told["datatype"] == "BYTES":
            import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

            return tf.constant(array)
        if told["datatype"] == "BF16":
            return self._keras.ops.cast(np.array(array), "bfloat16")
        return self._keras.ops.convert_to_tensor(np.array(array))

    def _plain(self, value: Any) -> Any:
        if hasattr(value, "dtype") and self._keras.backend.standardize_dtype(value.dtype) == "bfloat16":
            value = self._keras.ops.cast(value, "float32")
        return self._keras.ops.convert_to_numpy(value)


def _choose_backend() -> str:
    """Return the backend set by KERAS_BACKEND, or the first one that is installed."""
    setting = os.environ.get("KERAS_BACKEND", "")
    backend = setting or next((candidate for candidate in _BACKENDS if importlib.util.find_spec(candidate) is not None), "")
    if not backend:
        raise ModuleNotFoundError("Keras needs TensorFlow, PyTorch or JAX", name="tensorflow")
    os.environ["KERAS_BACKEND"] = backend
    return backend


def _bound(backend: str, threads: int) -> None:
    if backend == "tensorflow":
        import tensorflow as tf  # noqa: PLC0415

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    elif backend == "torch":
        import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

        torch.set_num_threads(threads)


def load(order: Any) -> KerasModel:
    """Load the model."""
    return KerasModel(order)
