"""A model saved with scikit-learn: trained by a job, registered, planned and served, through the real command line."""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path

import pytest
from gang import EXAMPLES, call

ASKED = "{requirements: requirements.txt}"


def with_python(folder: Path, python: str) -> Path:
    """Copy the example and make it use an existing environment."""
    shutil.copytree(EXAMPLES / "23-serve-sklearn", folder)
    for name in ("job.yaml", "service.yaml"):
        text = (folder / name).read_text()
        assert ASKED in text
        (folder / name).write_text(text.replace(ASKED, f"{{python: {python}}}"))
    return folder


@pytest.mark.framework("tabular")
@pytest.mark.timeout(240)
def test_a_classifier_is_trained_registered_and_served(home: Path, python: str, tmp_path: Path) -> None:
    folder = with_python(tmp_path / "example", python)
    code, output = call(home, "run", str(folder / "job.yaml"), timeout=120)
    assert code == 0, output
    code, output = call(home, "model", "get", "digits", "-o", "json")
    assert code == 0, output
    model = json.loads(output[output.index("{") :])
    assert model["format"] == "skops"
    assert model["signature"]["inputs"] == [{"name": "input", "datatype": "FP64", "shape": [-1, 64]}]

    code, output = call(home, "serve", "digits", "--plan", "--python", str(Path(call.__code__.co_filename).parents[2] / ".venv"))
    assert code == 1
    assert "the format skops needs scikit-learn, skops>=0.10" in output
    assert "-m pip install 'scikit-learn' 'skops>=0.10'" in output

    code, output = call(home, "serve", "digits", "--python", python, timeout=120)
    assert code == 0, output
    url = next(line for line in output.splitlines() if line.startswith("http://"))
    body = {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 64], "data": [0.0] * 64}]}
    with urllib.request.urlopen(f"{url}/v2/models/digits/infer", json.dumps(body).encode(), timeout=60) as answer:
        outputs = {each["name"]: each for each in json.load(answer)["outputs"]}
    assert outputs["predict"]["shape"] == [1]
    assert sum(outputs["predict_proba"]["data"]) == pytest.approx(1.0)
    assert call(home, "delete", "service/digits")[0] == 0


@pytest.mark.framework("tabular")
@pytest.mark.timeout(120)
def test_a_server_whose_environment_lacks_the_framework_gives_up_with_the_reason(home: Path, python: str, tmp_path: Path) -> None:
    made = tmp_path / "model.txt"
    made.write_bytes(b"tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\nTree=0\n")
    code, output = call(home, "model", "register", "trees", str(made))
    assert code == 0, output
    own = str(Path(call.__code__.co_filename).parents[2] / ".venv")
    code, output = call(home, "serve", "trees", "--python", own, timeout=90)
    assert code == 1
    assert "it needs lightgbm, and python lacks the module lightgbm" in output
    assert "-m pip install 'lightgbm'" in output
    assert call(home, "delete", "service/trees")[0] == 0
