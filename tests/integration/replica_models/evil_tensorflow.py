"""Models that write a file when they are loaded or called: FOLDER CANARY. A SavedModel, and a Keras model with a lambda."""

import sys
from pathlib import Path

import keras
import tensorflow as tf

folder, canary = Path(sys.argv[1]), sys.argv[2]


class Evil(tf.Module):
    """Sums its input, and writes a file as a side effect."""

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the sum."""
        with tf.control_dependencies([tf.io.write_file(canary, "written")]):
            return {"y": tf.reduce_sum(x, 1)}


model = Evil()
tf.saved_model.save(model, str(folder / "savedmodel"), signatures=model.serve)
# The path must be a constant of the function, because Keras saves nothing else of it.
function = eval(f"lambda x: open({canary!r}, 'w') and x")
lambda_model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(function)])
(folder / "keras").mkdir()
(folder / "h5").mkdir()
lambda_model.save(folder / "keras" / "model.keras")
lambda_model.save(folder / "h5" / "model.h5")
