"""A plain Python class that serves: the perceptron of `train_torch.py`, with numpy alone."""

import os

import numpy as np


class Model:
    """Digits."""

    signature = {  # noqa: RUF012  # as people write it
        "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 64]}],
        "outputs": [
            {"name": "scores", "datatype": "FP32", "shape": [-1, 10]},
            {"name": "digit", "datatype": "INT64", "shape": [-1]},
        ],
    }

    def load(self, folder):
        self.weights = np.load(os.path.join(folder, "digits.npz"))

    def predict(self, inputs):
        weights, images = self.weights, inputs["image"]
        if (images < 0).any():
            raise ValueError("no pixel is darker than black")
        hidden = np.maximum(images @ weights["0_weight"].T + weights["0_bias"], 0)
        scores = hidden @ weights["2_weight"].T + weights["2_bias"]
        return {"scores": scores, "digit": scores.argmax(1)}
