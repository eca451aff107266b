"""The script that creates the frameworks' environments: once, again only after the requirements changed, and never half."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gang import ROOT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with this script and one framework without dependencies."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "framework-venv", tmp_path / "scripts")
    (tmp_path / "tests" / "requirements").mkdir(parents=True)
    (tmp_path / "tests" / "requirements" / "empty.txt").write_text("# nothing\n")
    return tmp_path


def make(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    command = [sys.executable, project / "scripts" / "framework-venv", *words]
    return subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)


def test_it_is_made_once_and_again_when_the_requirements_change(project: Path) -> None:
    first = make(project, "empty")
    assert first.returncode == 0, first.stderr
    assert first.stdout == f"{project / '.venvs' / 'empty' / 'bin' / 'python'}\n"
    mark = project / ".venvs" / "empty" / "mark"
    mark.touch()

    again = make(project, "empty")
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert mark.exists()

    (project / "tests" / "requirements" / "empty.txt").write_text("# still nothing\n")
    assert make(project, "--check", "empty").returncode == 1
    assert make(project, "empty").returncode == 0
    assert not mark.exists()


def test_one_that_was_interrupted_is_made_anew(project: Path) -> None:
    python = project / ".venvs" / "empty" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert make(project, "--check", "empty").returncode == 1
    assert make(project, "empty").returncode == 0
    assert subprocess.run([python, "-c", ""], check=False).returncode == 0


def test_an_unknown_name_is_refused_and_the_known_ones_are_named(project: Path) -> None:
    ended = make(project, "torhc")
    assert ended.returncode == 1
    assert ended.stderr == "framework-venv: no such framework: torhc; there are: empty\n"
