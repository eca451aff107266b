"""Scripts that use MLflow and nothing of Fairway, with the real client, as jobs and outside of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gang import EXAMPLES, GOOD, call, environment, run_example, wait_until

from fairway.testing.builder.model_file import onnx_file
from fairway.units.names import model_name

pytestmark = pytest.mark.framework("mlflow")

ANSWER = """
import sys, onnxruntime
from sklearn.datasets import load_digits
images, labels = load_digits(return_X_y=True)
session = onnxruntime.InferenceSession(f"{sys.argv[1]}/model.onnx")
(guesses,) = session.run(None, {"image": (images[1500:] / 16).astype("float32")})
print((guesses.argmax(axis=1) == labels[1500:]).mean())
"""
"""The accuracy of the registered model on held-out digits."""
PROGRAM = Path(__file__).parent / "programs" / "mlflow_told.py"
NAMES = Path(__file__).parent / "programs" / "mlflow_names.py"
SHARED = Path(__file__).parent / "programs" / "mlflow_shared.py"


def ask(home: Path, *words: str) -> Any:
    code, output = call(home, *words, "-o", "json")
    assert code == 0, output
    return json.loads(output[output.index("{") :])


def test_a_script_with_mlflow_logs_its_run_and_registers_its_model(home: Path, python: str) -> None:
    run = run_example(home, "18-mlflow", "--python", python)

    assert run.code == 0, run.output
    job = ask(home, "get", "digits")
    assert job["params"] == {"lr": "0.5", "epochs": "30"}
    assert job["tags"]["data"] == "scikit-learn digits"
    assert job["models"] == ["digits@1"]
    assert job["progress"]["step"] == 30
    assert job["progress"]["metrics"]["accuracy"] > GOOD
    points = ask(home, "metrics", "digits")["points"]
    assert [point["step"] for point in points] == list(range(1, 31))
    assert {point["source"] for point in points} == {"mlflow"}
    (version,) = ask(home, "model", "list")["models"]
    assert (version["name"], version["version"], version["format"]) == ("digits", 1, "onnx")
    assert version["metrics"] == job["progress"]["metrics"]
    found = ask(home, "model", "get", "digits@1")
    assert found["lineage"]["run"] == "default/digits-1"
    assert found["lineage"]["parameters"] == {"lr": "0.5", "epochs": "30"}
    assert [each["name"] for each in found["signature"]["inputs"]] == ["image"]
    summary = home / "jobs" / "default" / "digits-1" / "artifacts" / "report" / "summary.txt"
    assert summary.read_text().endswith("of 297 digits\n")
    folder = home.parent / "pulled"
    assert call(home, "model", "pull", "digits@1", str(folder))[0] == 0
    told = subprocess.run([python, "-c", ANSWER, str(folder)], capture_output=True, text=True, timeout=60, check=True)
    assert float(told.stdout) == pytest.approx(job["progress"]["metrics"]["accuracy"])


def test_the_same_script_outside_of_a_job(home: Path, python: str) -> None:
    call(home, "daemon", "start")
    lines = (home / "mlflow" / "env").read_text().splitlines()
    told = {name: value.strip("'") for name, value in (line.removeprefix("export ").split("=", 1) for line in lines)}
    env = {**environment(home), **told}
    script = [python, str(EXAMPLES / "18-mlflow" / "train.py"), "--epochs", "2"]
    ended = subprocess.run(script, env=env, capture_output=True, text=True, timeout=100, check=False)

    assert ended.returncode == 0, ended.stderr
    assert ask(home, "list")["jobs"] == []
    (version,) = ask(home, "model", "list")["models"]
    assert (version["name"], version["version"]) == ("digits", 1)
    assert ask(home, "model", "get", "digits")["lineage"]["parameters"] == {"lr": "0.1", "epochs": "2"}
    env["MLFLOW_TRACKING_TOKEN"] = told["MLFLOW_TRACKING_TOKEN"][:-1] + "x"
    refused = subprocess.run(script, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert refused.returncode == 1
    assert "the token is missing or was not issued by this Fairway" in refused.stderr


def test_nested_runs_a_restart_of_the_daemon_and_a_server_elsewhere(home: Path, python: str, tmp_path: Path) -> None:
    code, output = call(home, "submit", "--name", "told", "--", python, str(PROGRAM), str(tmp_path))
    assert code == 0, output
    wait_until(lambda: (tmp_path / "logged").exists())
    assert call(home, "daemon", "stop")[0] == 0
    assert call(home, "daemon", "start")[0] == 0
    (tmp_path / "restarted").write_text("")
    code, output = call(home, "wait", "told-1", timeout=100)
    assert code == 0, output + call(home, "logs", "told-1")[1]
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["run"] == "told-1"
    assert told["inner"] != "told-1"
    assert told["history"] == [[1, 1.0], [2, 0.5]]
    assert told["children"] == [[told["inner"], {"fold": "1"}]]
    assert told["best"] == ["told-1"]
    assert told["elsewhere"] not in ("told-1", told["inner"])
    assert [point["metrics"] for point in ask(home, "metrics", "told")["points"]] == [{"loss": 1.0}, {"loss": 0.5}]
    _, printed = call(home, "logs", "told-1")
    assert "the token is ***" in printed
    notes = home / "jobs" / "default" / "told-1" / "artifacts" / "notes" / "late.txt"
    assert notes.read_text() == "kept"


def test_a_job_changes_what_it_made_and_takes_nothing_from_another(home: Path, python: str, tmp_path: Path) -> None:
    told = {}
    for name in ("first", "second"):
        (tmp_path / "model.onnx").write_bytes(onnx_file(weights=(name,)))
        code, output = call(home, "run", "--name", name, "--", python, str(SHARED), str(tmp_path), name, timeout=100)
        assert code == 0, output
        told[name] = json.loads((tmp_path / f"{name}.json").read_text())

    assert told["first"]["refused"] == []
    assert told["first"]["params"]["max_iter"] == "20"
    assert [code for code, _ in told["second"]["refused"]] == ["PERMISSION_DENIED"] * 4
    assert "fairway model promote shared@2 champion" in told["second"]["refused"][0][1]
    versions = {f"{each['name']}@{each['version']}": each["aliases"] for each in ask(home, "model", "list")["models"]}
    assert versions == {"shared@1": ["champion", "of-first"], "shared@2": ["of-second"]}
    assert ask(home, "get", "first")["tags"]["taken"] == "first"
    assert call(home, "model", "promote", "shared@2", "champion")[0] == 0


def test_names_that_are_no_names_here_come_back_as_they_were_given(home: Path, python: str, tmp_path: Path) -> None:
    files = [onnx_file(weights=(f"w{number}",)) for number in range(4)]
    for number, data in enumerate(files):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "model.onnx").write_bytes(data)
    code, output = call(home, "run", "--name", "names", "--", python, str(NAMES), str(tmp_path), timeout=100)

    assert code == 0, output
    told = json.loads((tmp_path / "told.json").read_text())
    names = list(told["models"])
    assert told["found"] == sorted(names)
    assert told["models"] == {name: [name, name, name, data.hex()] for name, data in zip(names, files, strict=True)}
    listed = {each["title"] or each["name"]: each["name"] for each in ask(home, "model", "list")["models"]}
    assert listed == {name: model_name(name) for name in names}
    assert call(home, "model", "get", listed["ResNet50"])[0] == 0
    refused, output = call(home, "model", "get", "ResNet18")
    assert refused == 2
    assert listed["ResNet18"] in output
