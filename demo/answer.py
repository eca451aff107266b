"""Print the model's answer beside the right one."""

import json
import sys

import numpy

with numpy.load(f"{sys.argv[1]}/mnist.npz") as found:
    right = int(found["test_labels"][0])
scores = json.load(sys.stdin)["predictions"][0]
print(f"the model says {scores.index(max(scores))}; the image is a {right}")
