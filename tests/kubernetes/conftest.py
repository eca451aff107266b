"""Shared fixtures of the tests on a real control plane."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cluster import audit

ROOT = Path(__file__).parents[2]
_RAN: set[str] = set()


@pytest.fixture
def framework_python(request: pytest.FixtureRequest) -> str:
    """The interpreter with the framework that the test is marked with. Where none can be installed it is skipped, never in CI."""
    marker = request.node.get_closest_marker("framework")
    assert marker, "mark the test with @pytest.mark.framework(NAME)"
    made = subprocess.run([ROOT / "scripts" / "framework-venv", *marker.args], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode and not os.environ.get("CI"):
        pytest.skip(f"the environment of {marker.args[0]} cannot be installed here")
    assert made.returncode == 0, f"scripts/framework-venv {marker.args[0]} failed"
    return made.stdout.strip()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "last: looks at what all other tests did, and runs after them")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def pytest_runtest_logfinish(location: tuple[str, int | None, str]) -> None:
    _RAN.add(Path(location[0]).name)


def pytest_sessionfinish() -> None:
    folder = audit.shared()
    if folder is not None and audit.HEARD.allowed:
        audit.HEARD.keep(folder, _RAN)
