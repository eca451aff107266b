"""LeNet-5 behind BentoML, as its documentation has it. Not a benchmark by itself."""

from __future__ import annotations

import os

import bentoml
import numpy as np
import onnxruntime


@bentoml.service(workers=1)
class Lenet:
    """One model."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["PEER_MODEL"], options, providers=["CPUExecutionProvider"])

    @bentoml.api
    def predict(self, data: list[float]) -> list[float]:
        """One picture."""
        (output,) = self.session.run(["y"], {"x": np.array(data, np.float32).reshape(1, 1, 28, 28)})
        return output.ravel().tolist()
