"""Shared fixtures of the tests of the examples: a separate home, and the interpreters of the frameworks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # makes `gang.py` importable for the tests beside it


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home; its daemon and all its running processes are ended afterwards."""
    from gang import end_home

    path = tmp_path / "home"
    yield path
    end_home(path)


@pytest.fixture
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter with the framework that the test is marked with; its environment is created if missing.

    Where no packages can be installed the test is skipped, but never in CI.
    """
    from gang import ROOT

    marker = request.node.get_closest_marker("framework")
    assert marker, "mark the test with @pytest.mark.framework(NAME)"
    made = subprocess.run([ROOT / "scripts" / "framework-venv", *marker.args], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode and not os.environ.get("CI"):
        pytest.skip(f"the environment of {marker.args[0]} cannot be installed here")
    assert made.returncode == 0, f"scripts/framework-venv {marker.args[0]} failed"
    return made.stdout.strip()
