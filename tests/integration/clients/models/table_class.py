"""A price for a table with columns of several types."""

import numpy as np


class Model:
    signature = {
        "inputs": [
            {"name": "rooms", "datatype": "INT64", "shape": [-1]},
            {"name": "area", "datatype": "FP64", "shape": [-1, 1]},
            {"name": "city", "datatype": "BYTES", "shape": [-1]},
            {"name": "new", "datatype": "BOOL", "shape": [-1]},
        ],
        "outputs": [
            {"name": "price", "datatype": "FP64", "shape": [-1]},
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
        ],
    }

    def predict(self, inputs):
        price = inputs["rooms"] * 100.0 + inputs["area"][:, 0] + 1000.0 * inputs["new"]
        return {"price": price, "label": np.array([b"in " + city for city in inputs["city"]], object)}
