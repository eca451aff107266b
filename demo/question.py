"""Print one request to the served model: the first image of the test set, in the format of TensorFlow Serving."""

import json
import sys

import numpy

with numpy.load(f"{sys.argv[1]}/mnist.npz") as found:
    image = (found["test_images"][0].astype("float32") / 255 - 0.1307) / 0.3081
print(json.dumps({"instances": [[image.tolist()]]}))
