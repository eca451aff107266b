"""The public names of the package, and the cost of importing it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fairway

PUBLIC = {
    "AsyncClient", "Client", "FairwayError", "__version__", "attempt", "checkpoint", "data",
    "export", "handle_sigterm", "in_job",
    "index", "job", "local_leader", "local_rank", "local_world_size",
    "output", "peers", "rank", "report", "requeue", "role", "shards", "should_stop", "tensorboard_dir", "world_size",
}  # fmt: skip


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(fairway.__all__) == PUBLIC
    assert list(fairway.__all__) == sorted(fairway.__all__)
    assert dir(fairway) == sorted(fairway.__all__)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(fairway, name) is not None


def test_type_checkers_are_told_of_the_same_names() -> None:
    tree = ast.parse(Path(fairway.__file__).read_text())
    told = {
        alias.name
        for block in tree.body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    assert told == PUBLIC


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rnak'"):
        _ = fairway.rnak  # type: ignore[attr-defined]


def test_importing_it_loads_nothing_else() -> None:
    code = "import sys, os; before = set(sys.modules); import fairway; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["fairway"]


def test_importing_it_takes_less_than_a_millisecond() -> None:
    # Best of five in a fresh interpreter each: a busy machine makes it slower, never faster.
    code = "import time; began = time.perf_counter(); import fairway; print(time.perf_counter() - began)"
    times = [float(subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True).stdout) for _ in range(5)]
    assert min(times) < 0.001
