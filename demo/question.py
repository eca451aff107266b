"""One question to the served model: the first image of the test set, as TensorFlow Serving has it."""

import json
import sys

import numpy

with numpy.load(f"{sys.argv[1]}/mnist.npz") as found:
    image = (found["test_images"][0].astype("float32") / 255 - 0.1307) / 0.3081
print(json.dumps({"instances": [[image.tolist()]]}))
