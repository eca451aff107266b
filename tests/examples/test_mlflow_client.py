"""Every public method of the MLflow client against Fairway: the table of cases in `mlflow_cases`, run with the real client."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gang import call, environment

pytestmark = pytest.mark.framework("mlflow")

HERE = Path(__file__).parent
LISTED = 254
"""The number of cases."""
COVERED = """
import inspect, json
from mlflow import MlflowClient
import mlflow_cases.__main__
from mlflow_cases.table import CASES
from mlflow_cases.unavailable import OTHERS
public = {name for name, _ in inspect.getmembers(MlflowClient, callable) if not name.startswith("_")}
print(json.dumps([sorted(public - {each.method for each in CASES} - set(OTHERS)), sorted(set(OTHERS) - public), len(public)]))
"""


def told(home: Path) -> dict[str, str]:
    """Return the environment variables with the address and the token of the owner."""
    lines = (home / "mlflow" / "env").read_text().splitlines()
    return {name: value.strip("'") for name, value in (line.removeprefix("export ").split("=", 1) for line in lines)}


def run_python(python: str, home: Path, *words: str, **more: str) -> str:
    """Run a program in the client's environment; return its output."""
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": "ignore", "MLFLOW_LOGGING_LEVEL": "ERROR"}
    env = {**os.environ, **environment(home), **quiet, "PYTHONPATH": str(HERE), **more}
    ended = subprocess.run([python, *words], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_every_case_has_a_name_of_its_own_and_its_module_is_imported(home: Path, python: str) -> None:
    program = (
        "import json, mlflow_cases.__main__ as m; print(json.dumps([[c.name for c in m.CASES], [x.__name__ for x in m.MODULES]]))"
    )
    names, modules = json.loads(run_python(python, home, "-c", program))
    assert sorted(names) == sorted(set(names))
    assert len(names) == LISTED
    others = {"__init__", "__main__", "table"}
    found = {path.stem for path in (HERE / "mlflow_cases").glob("*.py")} - others
    assert {each.rpartition(".")[2] for each in modules} == found


def test_every_method_of_the_client_has_a_case(home: Path, python: str) -> None:
    missing, gone, count = json.loads(run_python(python, home, "-c", COVERED))
    assert missing == []
    assert gone == []
    assert count > 140


@pytest.mark.timeout(400)
def test_the_client_is_answered_as_by_its_own_server(home: Path, python: str, tmp_path: Path) -> None:
    call(home, "daemon", "start")
    env = told(home)
    run_python(python, home, "-m", "mlflow_cases", env["MLFLOW_TRACKING_URI"], str(tmp_path / "out.json"), **env)
    told_of = json.loads((tmp_path / "out.json").read_text())
    outcomes: list[dict[str, Any]] = told_of["outcomes"]
    assert [each["case"] for each in outcomes] == told_of["listed"], "every case that is listed is run, once"
    failed = [f"{each['case']}: {each['why']}" for each in outcomes if not each["passed"]]
    assert failed == []
    assert len(outcomes) == LISTED, "a case came or went: say so here"
