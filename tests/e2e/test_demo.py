"""`make demo` does what the README says: it trains, registers, serves and sends requests, and leaves a usable model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAIRWAY = str(Path(sys.executable).with_name("fairway"))
USE = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
with numpy.load(sys.argv[2]) as found:
    images, labels = found["test_images"], found["test_labels"]
given = ((images[:, None].astype("float32") / 255) - 0.1307) / 0.3081
(answers,) = session.run(None, {session.get_inputs()[0].name: given})
print(float((answers.argmax(1) == labels).mean()))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_trains_and_its_model_works(tmp_path: Path) -> None:
    made = subprocess.run([ROOT / "scripts" / "framework-venv", "torch"], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode and not os.environ.get("CI"):
        pytest.skip("the environment of torch cannot be installed here")
    assert made.returncode == 0
    if not (ROOT / ".venv" / "bin" / "fairway").exists():
        pytest.skip("the demo uses .venv, which is not there; run make venv")
    python = made.stdout.strip()
    fetched = subprocess.run([python, ROOT / "examples" / "data" / "mnist.py"], capture_output=True, text=True, check=True)
    # Without a network there are forty times fewer images.
    epochs = "1" if "MNIST: 60,000" in fetched.stderr else "30"
    home = tmp_path / "home"
    environment = {**os.environ, "FAIRWAY_HOME": str(home), "FAIRWAY_MACHINE_DIR": str(tmp_path / "machine")}
    try:
        ended = subprocess.run(
            [ROOT / "demo" / "run", "--epochs", epochs], env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        shown = subprocess.run(
            [FAIRWAY, "get", "demo", "-o", "json"], env=environment, capture_output=True, text=True, check=True
        )
        service = subprocess.run(
            [FAIRWAY, "get", "service/mnist", "-o", "json"], env=environment, capture_output=True, text=True, check=True
        )
    finally:
        subprocess.run([FAIRWAY, "delete", "service/mnist"], env=environment, capture_output=True, check=False)
        subprocess.run([FAIRWAY, "daemon", "stop"], env=environment, capture_output=True, check=False)
    assert json.loads(shown.stdout)["phase"] == "Succeeded"
    assert f"worker-0 | epoch 1 of {epochs}" in ended.stdout
    assert json.loads(service.stdout)["serves"] == "mnist@1"
    assert "the model says" in ended.stdout
    model = home / "jobs" / "default" / "demo-1" / "outputs" / "model" / "model.onnx"
    used = subprocess.run(
        [python, "-c", USE, model, f"{fetched.stdout.strip()}/mnist.npz"], capture_output=True, text=True, check=True
    )
    assert float(used.stdout) > 0.85
