"""The JAX example, on real digits, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from gang import DIGITS, GOOD, call, check_gang, run_example

pytestmark = pytest.mark.framework("jax")


def test_one_mesh_over_processes(home: Path, python: str) -> None:
    run = run_example(home, "14-jax", "--python", python)

    assert run.code == 0, run.output
    notes = run.ranks()
    check_gang(notes, 2, DIGITS)
    assert [note["peers"] for note in notes] == [[note["pid"] for note in notes]] * 2  # gathered through JAX itself
    assert notes[0]["accuracy"] > GOOD
    assert "at step 200" in run.output


def test_without_peers_it_refuses(home: Path, python: str) -> None:
    run = run_example(home, "14-jax", "--python", python, "--framework", "command", "--retries", "0")

    assert run.code == 1, run.output
    assert "coordinator_address should be defined" in run.output
    assert run.ranks() == []


def test_one_worker_initializes_as_many_do(home: Path, python: str, tmp_path: Path) -> None:
    home.mkdir(exist_ok=True)
    program = tmp_path / "one.py"
    program.write_text("import jax\njax.distributed.initialize()\nprint('processes:', jax.process_count())\n")
    code, output = call(home, "run", "--name", "one", "--", python, str(program), timeout=100)

    assert code == 0, output
    assert "processes: 1" in output
