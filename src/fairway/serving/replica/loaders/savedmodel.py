"""TensorFlow SavedModels."""

from __future__ import annotations

import os
from typing import Any


class TensorflowSavedModel:
    """The signature `serving_default` of a TensorFlow SavedModel."""

    platform = "tensorflow_savedmodel"

    def __init__(self, order: Any) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

        tf.config.threading.set_intra_op_parallelism_threads(order.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self._tf = tf
        self._words = order.words
        self._model = tf.saved_model.load(order.entry)  # keeps the model alive, without which the signature does not work
        signatures = self._model.signatures
        if "serving_default" not in signatures:
            message = "it has no signature serving_default, only: %s; export it with Model.export" % (
                ", ".join(signatures) or "none"
            )
            raise ValueError(message)
        self._run = signatures["serving_default"]
        self.inputs = [self._told(name, spec) for name, spec in sorted(self._run.structured_input_signature[1].items())]
        self.outputs = [self._told(name, spec) for name, spec in sorted(self._run.structured_outputs.items())]

    def _told(self, name: str, spec: Any) -> dict[str, Any]:
        return {
            "name": name,
            "datatype": self._words[spec.dtype.name],
            "shape": [-1 if length is None else length for length in spec.shape],
        }

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Run the signature."""
        tf = self._tf
        named = {
            spec["name"]: tf.cast(array, tf.bfloat16) if spec["datatype"] == "BF16" else tf.constant(array)
            for spec, array in zip(self.inputs, inputs)
        }
        outputs = self._run(**named)
        results = [outputs[spec["name"]] for spec in self.outputs]
        return [(tf.cast(result, tf.float32) if result.dtype == tf.bfloat16 else result).numpy() for result in results]


def load(order: Any) -> TensorflowSavedModel:
    """Load the signature."""
    return TensorflowSavedModel(order)
