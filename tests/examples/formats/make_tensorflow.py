"""Small models of Keras and TensorFlow, each with inputs and the predictions of the framework itself."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf
from kept import keep, made

keras.utils.set_random_seed(0)
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((8, 4)).astype("f4")


def plain(model, names):
    def run(given):
        values = list(given.values())
        return dict(zip(names, keras.tree.flatten(model(values[0] if len(values) == 1 else values, training=False)), strict=True))

    return lambda given: {name: each.numpy() for name, each in run(given).items()}


def models():
    model = keras.Sequential(
        [keras.layers.Input((4,), name="x"), keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax", name="scores")]
    )
    model.save(made("keras-sequential") / "model.keras")
    keep("keras-sequential", {"x": X}, plain(model, ["scores"]))
    left, right = keras.layers.Input((4,), name="left"), keras.layers.Input((None, 2), name="right")
    joined = keras.layers.Concatenate()([left, keras.layers.GlobalAveragePooling1D()(right)])
    outputs = [keras.layers.Dense(2, name="first")(joined), keras.layers.Dense(1, name="second")(joined)]
    model = keras.Model([left, right], outputs)
    model.save(made("keras-two-inputs") / "model.keras")
    keep(
        "keras-two-inputs",
        {"left": X, "right": RANDOM.standard_normal((8, 5, 2)).astype("f4")},
        plain(model, ["first", "second"]),
    )
    entry = keras.layers.Input((4,), name="x")
    model = keras.Model(entry, keras.layers.Lambda(lambda rows: rows * 2.0, output_shape=(4,), name="twice")(entry))
    model.save(made("keras-lambda") / "model.keras")
    keep("keras-lambda", {"x": X}, plain(model, ["twice"]))


class Sums(tf.Module):
    """Rows of variable length, and strings."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
    def sums(self, x):
        return {"sum": tf.reduce_sum(x, 1), "sorted": tf.sort(x, 1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def lengths(self, text):
        return {"length": tf.strings.length(text), "upper": tf.strings.upper(text)}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def mean(self, x):
        return {"y": x - tf.reduce_mean(x, 0, keepdims=True)}


def saved():
    module = Sums()
    texts = [text.encode() for text in ("the sea", "a", "ship", "é", "x1", "far away", "no", "yes")]
    for name, function, inputs in (
        ("savedmodel-dynamic", module.sums, {"x": RANDOM.standard_normal((8, 5)).astype("f4")}),
        ("savedmodel-texts", module.lengths, {"text": np.array(texts, object)}),
        ("savedmodel-mixing", module.mean, {"x": X}),
    ):
        tf.saved_model.save(module, str(made(name)), signatures={"serving_default": function})
        keep(
            name,
            inputs,
            lambda given, function=function: {
                key: each.numpy() for key, each in function(*map(tf.constant, given.values())).items()
            },
        )


models()
saved()
