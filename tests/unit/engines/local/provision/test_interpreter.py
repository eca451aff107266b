"""Choosing the Python interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fairway.engines.local.provision import interpreter
from fairway.engines.local.provision.interpreter import PythonInterpreter
from fairway.errors import RefusedError


def environment(folder: Path, mark: str = "pyvenv.cfg") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    if mark == "conda-meta":
        (folder / mark).mkdir()
    else:
        (folder / mark).touch()
    return folder


def test_a_folder_of_an_environment(tmp_path: Path) -> None:
    place = environment(tmp_path / ".venv")
    assert interpreter.find(".venv", str(tmp_path), "") == PythonInterpreter(str(place / "bin/python"), str(place))
    assert interpreter.find(str(place), "/elsewhere", "").prefix == str(place)


def test_an_interpreter_within_an_environment(tmp_path: Path) -> None:
    place = environment(tmp_path / "env", "conda-meta")
    found = interpreter.find("env/bin/python", str(tmp_path), "")
    assert found == PythonInterpreter(str(place / "bin/python"), str(place), conda=True)


def test_a_name_on_the_path(tmp_path: Path) -> None:
    program = tmp_path / "python3.99"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert interpreter.find("python3.99", "/", str(tmp_path)) == PythonInterpreter(str(program))


@pytest.mark.parametrize(
    ("asked", "words"), [("empty", "holds no bin/python"), ("plain", "not executable"), ("gone", "no such file")]
)
def test_what_is_no_python_is_refused(tmp_path: Path, asked: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "plain").touch()
    with pytest.raises(RefusedError, match=words):
        interpreter.find(asked, str(tmp_path), str(tmp_path))


def test_variables_are_those_of_an_activated_environment() -> None:
    base = {"PATH": "/usr/bin:/venv/bin:/bin", "PYTHONHOME": "/x", "KEEP": "1"}
    assert PythonInterpreter("/venv/bin/python", "/venv").variables(base) == {
        "PATH": "/venv/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": "/venv",
        "KEEP": "1",
    }
    assert PythonInterpreter("/c/bin/python", "/c", conda=True).variables({})["CONDA_PREFIX"] == "/c"
    assert PythonInterpreter("/c/bin/python", "/c").variables({})["PATH"].split(os.pathsep)[0] == "/c/bin"


def test_a_plain_interpreter_changes_nothing() -> None:
    base = {"PATH": "/usr/bin", "VIRTUAL_ENV": "/mine"}
    assert PythonInterpreter("/usr/bin/python3").variables(base) == base
