"""The MPI example, on real digits, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from gang import DIGITS, EXAMPLES, GOOD, Run, call, check_gang, run_example

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


@pytest.mark.parametrize("way", ["command", "script"])
def test_mpirun_in_several_workers_makes_one_world(home: Path, python: str, tmp_path: Path, way: str) -> None:
    """By default, without `framework: mpi`: three workers are three slots of one call."""
    home.mkdir(exist_ok=True)
    program = EXAMPLES / "15-mpi" / "train.py"
    (tmp_path / "train.sh").write_text(f"mpirun python {program}\n")
    command = ["bash", str(tmp_path / "train.sh")] if way == "script" else ["mpirun", "python", str(program)]
    code, output = call(home, "run", "-w", "3", "--name", "ranks", "--python", python, "--", *command, timeout=100)

    assert code == 0, output
    run = Run(code, output, home / "jobs" / "default" / "ranks-1" / "shared")
    check_gang(run.ranks(), 3, DIGITS)
