"""A model under another interpreter than Fairway's own: every Python that the worker supports, each with numpy alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pythons import interpreter
from replica_process import replica

UV = Path(sys.executable).with_name("uv")

MODEL = """
import sys
import numpy

class Model:
    signature = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [
            {"name": "double", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "python", "datatype": "INT64", "shape": [-1, 2]},
        ],
    }

    def predict(self, inputs):
        if inputs["x"].min() < 0:
            raise ValueError("less than nothing")
        return {"double": 2 * inputs["x"], "python": numpy.tile(numpy.array(sys.version_info[:2]), (len(inputs["x"]), 1))}

    def generate(self, prompt, options):
        for word in prompt.split():
            yield word + " "

    def count(self, text):
        return len(text.split())
"""


def with_numpy(python: str, folder: Path) -> str:
    """Return the interpreter of an environment with numpy and nothing else; the test is skipped where it cannot be created."""
    own = str(folder / "bin" / "python")
    for command in (["venv", "--python", python, str(folder)], ["pip", "install", "--python", own, "numpy"]):
        if subprocess.run([UV, *command, "--quiet"], check=False).returncode:
            pytest.skip("numpy cannot be installed here")
    return own


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
@pytest.mark.timeout(120)
def test_a_python_class_under_another_python(version: str, tmp_path: Path) -> None:
    python = with_numpy(interpreter(version), tmp_path / "venv")
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.py").write_text(MODEL)
    with replica(model, "--name", "m", "--runtime", "python", "--python", python) as served:
        status, answer, _ = served.ask("POST", "/v1/models/m:predict", {"instances": [[1, 2, 3], [4, 5, 6]]})
        assert status == 200, answer
        numbers = [int(each) for each in version.split(".")]
        assert answer["predictions"] == [
            {"double": [2, 4, 6], "python": numbers},
            {"double": [8, 10, 12], "python": numbers},
        ]
        status, answer, _ = served.ask("POST", "/v1/models/m:predict", {"instances": [[-1, 2, 3]]})
        assert (status, "less than nothing" in answer["error"]) == (400, True)
        status, answer, _ = served.ask("POST", "/v1/completions", {"model": "m", "prompt": "one two three"})
        assert status == 200, answer
        assert answer["choices"][0]["text"] == "one two three "
        assert answer["usage"]["completion_tokens"] == 3
    assert served.process.returncode == 0
