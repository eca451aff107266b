"""Models of each common flavour of MLflow, registered by a job and served: they predict as MLflow's own loader does."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from gang import ROOT, call

PROGRAM = Path(__file__).parent / "programs" / "mlflow_flavours.py"
FORMATS = {
    "sklearn": "skops",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "catboost": "catboost",
    "onnx": "onnx",
    "pytorch": "torch-export",
    "transformers": "transformers",
    "keras": "keras",
}
"""The format of Fairway that each flavour is converted to."""
MAIN = {"sklearn": "predict"}
"""The output that is compared, where there are several."""


def interpreter(name: str) -> str:
    """Return the interpreter with a framework; the test is skipped where it cannot be installed, but never in CI."""
    made = subprocess.run([ROOT / "scripts" / "framework-venv", name], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode and not os.environ.get("CI"):
        pytest.skip(f"the environment of {name} cannot be installed here")
    assert made.returncode == 0, f"scripts/framework-venv {name} failed"
    return made.stdout.strip()


def packages(python: str) -> str:
    """Return the folder of an interpreter's packages."""
    words = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def predicted(home: Path, name: str, asked: list[Any]) -> Any:
    """Return the service's response in the protocol of MLflow's scoring server."""
    code, output = call(home, "get", f"service/{name}", "-o", "json")
    assert code == 0, output
    url = json.loads(output)["url"]
    request = urllib.request.Request(
        f"{url}/invocations", json.dumps({"inputs": asked}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["predictions"]


def check_flavours(home: Path, folder: Path, environment: str, flavours: list[str]) -> None:
    """Log and register a model of each flavour in one job; then serve each and compare its predictions."""
    python = interpreter(environment)
    more = ["-e", f"MLFLOW_PACKAGES={packages(interpreter('mlflow'))}", "-e", "MLFLOW_DISABLE_TELEMETRY=true"]
    code, output = call(home, "run", "--name", "log", *more, "--", python, str(PROGRAM), str(folder), *flavours, timeout=200)
    assert code == 0, output
    _, listed = call(home, "model", "list", "-o", "json")
    known = {each["name"]: each for each in json.loads(listed)["models"]}
    assert {name: each["format"] for name, each in known.items()} == {f"{each}-net": FORMATS[each] for each in flavours}
    for flavour in flavours:
        name, told = f"{flavour}-net", json.loads((folder / f"{flavour}.json").read_text())
        code, output = call(home, "serve", name, "--python", python, "--cpus", "500m", timeout=120)
        assert code == 0, output
        found = predicted(home, name, told["asked"])
        found = found[MAIN[flavour]] if flavour in MAIN and isinstance(found, dict) else found
        if isinstance(told["told"], dict):
            found = {key: found[key] for key in told["told"]}
        assert_alike(found, told["told"])
        assert call(home, "delete", f"service/{name}", "-y")[0] == 0


def assert_alike(found: Any, told: Any) -> None:
    """Assert that two plain values are equal within the tolerance of single precision."""
    if isinstance(told, dict):
        assert found.keys() == told.keys()
        for key in told:
            assert_alike(found[key], told[key])
    elif isinstance(told, list):
        assert len(found) == len(told)
        for one, other in zip(found, told, strict=True):
            assert_alike(one, other)
    else:
        assert found == (pytest.approx(told, abs=1e-5) if isinstance(told, float) else told)


@pytest.mark.timeout(400)
def test_flavours_of_rows_and_onnx(home: Path, tmp_path: Path) -> None:
    check_flavours(home, tmp_path, "tabular", ["sklearn", "xgboost", "lightgbm", "catboost", "onnx"])


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_flavours_of_torch(home: Path, tmp_path: Path) -> None:
    check_flavours(home, tmp_path, "torch", ["pytorch", "transformers"])


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_flavour_of_keras(home: Path, tmp_path: Path) -> None:
    check_flavours(home, tmp_path, "tensorflow", ["keras"])
