"""SavedModels of TensorFlow."""

from __future__ import annotations

import os
from typing import Any


class SavedModel:
    """A SavedModel of TensorFlow: its signature `serving_default`."""

    platform = "tensorflow_savedmodel"

    def __init__(self, order: Any) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

        tf.config.threading.set_intra_op_parallelism_threads(order.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self._tf = tf
        self._words = order.words
        self._model = tf.saved_model.load(order.entry)  # the signature lives as long as what it belongs to
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
            "shape": [-1 if each is None else each for each in spec.shape],
        }

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Run the signature."""
        tf = self._tf
        named = {
            told["name"]: tf.cast(array, tf.bfloat16) if told["datatype"] == "BF16" else tf.constant(array)
            for told, array in zip(self.inputs, inputs)
        }
        outputs = self._run(**named)
        found = [outputs[told["name"]] for told in self.outputs]
        return [(tf.cast(each, tf.float32) if each.dtype == tf.bfloat16 else each).numpy() for each in found]


def load(order: Any) -> SavedModel:
    """The loaded signature."""
    return SavedModel(order)
