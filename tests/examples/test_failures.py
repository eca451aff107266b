"""Failing ranks under real launchers: which error is reported, and what a stop does."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from gang import FAIRWAY

PROGRAM = Path(__file__).parent / "programs" / "fails.py"
ERRORS = {
    "error": ("Error", "RuntimeError: shape mismatch: [3, 4]"),
    "kill": ("Signal", "was ended by SIGKILL"),
    "import": ("MissingModule", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    "flag": ("CannotRun", "fails.py: error: unrecognized arguments: --bad"),
}


def fairway(home: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FAIRWAY_HOME": str(home), "FAIRWAY_MACHINE_DIR": str(home.parent / "machine")}
    return subprocess.run([FAIRWAY, *words], env=environment, capture_output=True, text=True, timeout=120, check=check)


def why(home: Path, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fairway(home, "why", run, "-o", "json").stdout)
    return found


def launcher(python: str, name: str) -> list[str]:
    program = Path(python).with_name(name)
    words = {
        "torchrun": [program, "--nproc-per-node", "2", PROGRAM, "torch"],
        "accelerate": [program, "launch", "--cpu", "--num_processes", "1", PROGRAM, "alone"],
        "mpirun": [program, "--oversubscribe", "-n", "2", python, PROGRAM, "mpi"],
    }[name]
    return [str(word) for word in words]


@pytest.mark.framework("torch")
@pytest.mark.parametrize("how", ERRORS)
def test_of_a_rank_under_torchrun_its_own_error_is_told(home: Path, python: str, how: str) -> None:
    fairway(home, "run", "--name", "fails", "--", *launcher(python, "torchrun"), how, check=False)
    found = why(home, "fails-1")
    assert (found["reason"], "rank 1" in found["message"]) == (ERRORS[how][0], True), found
    assert ERRORS[how][1] in found["message"]


@pytest.mark.framework("torch")
def test_under_accelerate_the_error_of_the_program_is_told(home: Path, python: str) -> None:
    fairway(home, "run", "--name", "fails", "--", *launcher(python, "accelerate"), "error", check=False)
    found = why(home, "fails-1")
    assert (found["reason"], "CalledProcessError" in found["message"]) == ("Error", False), found
    assert "RuntimeError: shape mismatch: [3, 4]" in found["message"]


@pytest.mark.framework("mpi")
def test_a_killed_rank_under_mpirun_is_named(home: Path, python: str) -> None:
    fairway(home, "run", "--name", "fails", "--", *launcher(python, "mpirun"), "kill", check=False)
    found = why(home, "fails-1")
    assert (found["reason"], "rank 1" in found["message"]) == ("Signal", True), found
    assert "SIGKILL" in found["message"]


@pytest.mark.framework("torch")
def test_a_rank_under_torchrun_saves_before_its_launcher_is_ended(home: Path, python: str) -> None:
    _stop_and_look(home, launcher(python, "torchrun"))


@pytest.mark.framework("mpi")
def test_a_rank_under_mpirun_saves_before_its_launcher_is_ended(home: Path, python: str) -> None:
    _stop_and_look(home, launcher(python, "mpirun"))


def _stop_and_look(home: Path, command: list[str]) -> None:
    fairway(home, "run", "--detach", "--name", "fails", "--", *command, "stop")
    deadline = time.monotonic() + 60
    while "asks" not in fairway(home, "logs", "fails-1", check=False).stdout:
        assert time.monotonic() < deadline, fairway(home, "logs", "fails-1", check=False).stdout
    fairway(home, "stop", "fails-1", "--wait")
    assert "saved" in fairway(home, "logs", "fails-1").stdout
    assert json.loads(fairway(home, "get", "fails-1", "-o", "json").stdout)["phase"] == "Stopped"
