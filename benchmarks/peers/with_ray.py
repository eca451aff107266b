"""LeNet-5 behind Ray Serve, as its documentation has it. Not a benchmark by itself."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import onnxruntime
import ray
from ray import serve


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0.1})
class Lenet:
    """One model."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["PEER_MODEL"], options, providers=["CPUExecutionProvider"])

    async def __call__(self, request):
        """One picture."""
        data = (await request.json())["data"]
        (output,) = self.session.run(["y"], {"x": np.array(data, np.float32).reshape(1, 1, 28, 28)})
        return output.ravel().tolist()


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Lenet.bind(), route_prefix="/predict")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()
