"""Linting and type checking, run as tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from source import ROOT

TOOLS = Path(sys.executable).parent


def run(*command: str) -> None:
    ended = subprocess.run([str(TOOLS / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_ruff_has_nothing_to_say() -> None:
    run("ruff", "check", "--output-format", "concise", ".")


def test_the_code_is_formatted() -> None:
    run("ruff", "format", "--check", ".")


@pytest.mark.timeout(300)
def test_types_are_right() -> None:
    run("mypy")


def test_every_dependency_is_used_and_declared() -> None:
    run("deptry", "src")
