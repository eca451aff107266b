"""A confined worker on a real GPU: it computes there, and still has access to neither the network nor files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpu_home import TORCH_PYTHON

from fairway.serving.replica.model.version_folder import find
from fairway.serving.replica.runtimes.worker_runtime import WorkerRuntime

pytestmark = pytest.mark.gpu

MODEL = """
import socket
import torch

def refused(do):
    try:
        do()
    except OSError:
        return 1.0
    return 0.0

class Model:
    signature = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "refused", "datatype": "FP32", "shape": [-1, 2]},
        ],
    }

    def predict(self, inputs):
        x = torch.from_numpy(inputs["x"].copy()).cuda()
        found = [refused(socket.socket), refused(lambda: open(CANARY, "w"))]
        y = torch.nn.functional.conv1d(x[:, None, :], torch.full((1, 1, 1), 2.0, device="cuda"))[:, 0, :]
        return {"y": y.cpu().numpy(), "refused": torch.tensor([found] * len(x)).numpy()}
"""


@pytest.mark.usefixtures("uuid")
def test_a_confined_worker_computes_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_CONFINE", "always")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.py").write_text(f"CANARY = {str(tmp_path / 'canary')!r}\n{MODEL}")
    runtime = WorkerRuntime(find(folder, runtime="python"), str(TORCH_PYTHON))
    try:
        assert runtime.confined.startswith("confined: no network")
        y, refused = runtime.run([np.ones((2, 3), np.float32)])
        assert y.tolist() == [[2.0] * 3] * 2
        assert refused.tolist() == [[1.0, 1.0]] * 2
        assert not (tmp_path / "canary").exists()
    finally:
        runtime.close()
