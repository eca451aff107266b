"""Fixtures of the fault tests: homes with a real daemon, removed completely afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # makes `daemon_home.py` importable for the tests beside it


@pytest.fixture
def caller() -> Iterator[object]:
    """Standard input for a task under a supervisor: `playground.start(..., stdin=caller.name)`."""
    from caller import Caller

    made = Caller()
    yield made
    made.close()


@pytest.fixture
def make_home(tmp_path: Path) -> Iterator[Callable[..., object]]:
    """Creates homes: `make_home("other", FAIRWAY_CPUS="2")`. All share one machine folder. `disk` holds the home."""
    from daemon_home import DaemonHome

    made: list[DaemonHome] = []

    def make(name: str = "home", disk: Path | None = None, **environment: str) -> DaemonHome:
        made.append(DaemonHome(tmp_path, name, environment, disk))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """One home for all tests of a file that only read, or clean up after themselves."""
    from daemon_home import DaemonHome

    made = DaemonHome(tmp_path_factory.mktemp("shared"))
    yield made
    made.close()


@pytest.fixture
def home(make_home: Callable[..., object]) -> object:
    """One home with two fake GPUs."""
    return make_home()
