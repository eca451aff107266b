"""Train a perceptron on handwritten digits with Keras; save it as a SavedModel."""

import sys
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

folder = Path(sys.argv[1])
keras.utils.set_random_seed(0)
digits = load_digits()
images = (digits.data / 16).astype("float32")
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(images[:1500], digits.target[:1500], epochs=12, batch_size=32, verbose=0)
np.savez(folder / "digits.npz", images=images[1500:], labels=digits.target[1500:], logits=model.predict(images[1500:], verbose=0))
model.export(folder / "savedmodel", verbose=False)
