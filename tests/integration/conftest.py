"""What the fault tests share: homes with a real daemon, gone without a trace afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # makes `daemon_home.py` importable for the tests beside it


@pytest.fixture
def make_home(tmp_path: Path) -> Iterator[Callable[..., object]]:
    """Makes homes under the test's folder: `make_home("other", FAIRWAY_CPUS="2")`. All share one machine folder."""
    from daemon_home import DaemonHome

    made: list[DaemonHome] = []

    def make(name: str = "home", **environment: str) -> DaemonHome:
        made.append(DaemonHome(tmp_path, name, environment))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def home(make_home: Callable[..., object]) -> object:
    """One home with two pretended GPUs."""
    return make_home()
