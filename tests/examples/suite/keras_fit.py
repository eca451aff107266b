"""Keras in one process, as in its tutorials."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy

keras.utils.set_random_seed(7)
inputs = numpy.linspace(-1, 1, 256, dtype="float32").reshape(256, 1)
model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", metrics=["mae"])
model.fit(inputs, 3 * inputs + 0.5, batch_size=32, epochs=3, validation_split=0.25)
print("weights", [round(float(value), 4) for part in model.get_weights() for value in part.ravel()], flush=True)
