"""Waits as long as its input requests."""

import time


class Model:
    signature = {
        "inputs": [{"name": "seconds", "datatype": "FP32", "shape": [-1, 1]}],
        "outputs": [{"name": "waited", "datatype": "FP32", "shape": [-1, 1]}],
    }

    def predict(self, inputs):
        time.sleep(float(inputs["seconds"].max()))
        return {"waited": inputs["seconds"]}
