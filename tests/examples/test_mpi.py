"""The MPI example, on real digits, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from gang import DIGITS, GOOD, check_gang, run_example

pytestmark = pytest.mark.framework("mpi")


def test_ranks_add_up_gradients(home: Path, python: str) -> None:
    run = run_example(home, "15-mpi", "--python", python)

    assert run.code == 0, run.output
    notes = run.ranks()
    check_gang(notes, 3, DIGITS)
    assert [note["peers"] for note in notes] == [[note["pid"] for note in notes]] * 3  # gathered through MPI itself
    assert notes[0]["accuracy"] > GOOD
    assert "at step 300" in run.output


def test_without_mpiexec_each_is_alone(home: Path, python: str) -> None:
    apart = run_example(home, "15-mpi", "--python", python, "--framework", "command")

    assert apart.code == 0, apart.output
    with pytest.raises(AssertionError, match="number of peers"):
        check_gang(apart.ranks(), 3, DIGITS)
