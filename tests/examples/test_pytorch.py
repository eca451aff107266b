"""PyTorch and frameworks built on it: every way to start ranks gives one gang that trains one model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gang import DIGITS, GOOD, Run, call, check_gang

PROGRAMS = Path(__file__).with_name("programs")
WAYS = [
    pytest.param("pytorch", "python ddp_gang.py", 2, 1, id="ranks"),
    pytest.param("auto", "python ddp_gang.py", 2, 1, id="ranks by default"),
    pytest.param("pytorch", "python ddp_gang.py", 1, 3, id="processes of one replica"),
    pytest.param("pytorch", "torchrun ddp_gang.py", 2, 2, id="torchrun without flags"),
    pytest.param("auto", "python -m torch.distributed.run --nproc-per-node 2 ddp_gang.py", 2, 1, id="torchrun with a flag"),
    pytest.param("pytorch", "accelerate launch accelerate_gang.py", 2, 1, id="accelerate launch"),
    pytest.param("pytorch", "accelerate launch accelerate_gang.py", 1, 2, id="accelerate launch with processes"),
    pytest.param("auto", "python accelerate_gang.py", 2, 1, id="accelerate without its launcher"),
    pytest.param("auto", "python lightning_gang.py", 2, 1, id="lightning"),
    pytest.param("auto", "bash torchrun.sh", 2, 1, id="torchrun in a script"),
    pytest.param("auto", "bash nested.sh", 1, 2, id="torchrun in a script of a script, with processes"),
    pytest.param("pytorch", "python calls_torchrun.py", 2, 1, id="torchrun out of sight"),
    pytest.param("auto", "bash plain.sh", 2, 1, id="ranks in a script"),
    pytest.param("auto", "bash accelerate.sh", 2, 1, id="accelerate launch in a script"),
]
pytestmark = [pytest.mark.framework("torch"), pytest.mark.timeout(300)]


def run_gang(home: Path, python: str, framework: str, command: str, replicas: int, processes: int, expect: int) -> Run:
    """Run one of the programs as a job with its own document."""
    document = {
        "kind": "TrainingJob",
        "name": "gang",
        "framework": framework,
        "code": str(PROGRAMS),
        "environment": {"python": python},
        "env": {"EXPECT": str(expect), "NODES": str(replicas), "DEVICES": str(processes)},
        "roles": {"worker": {"replicas": replicas, "processes": processes, "command": command}},
        "restart": {"max": 0},
    }
    home.mkdir()
    path = home.with_name("job.yaml")
    path.write_text(json.dumps(document))  # JSON is YAML
    code, output = call(home, "run", str(path), timeout=240)
    return Run(code, output, home / "jobs" / "default" / "gang-1" / "shared")


@pytest.mark.parametrize(("framework", "command", "replicas", "processes"), WAYS)
def test_ranks_form_one_gang(home: Path, python: str, framework: str, command: str, replicas: int, processes: int) -> None:
    world = replicas * (2 if "--nproc-per-node" in command else processes)
    run = run_gang(home, python, framework, command, replicas, processes, world)

    assert run.code == 0, run.output
    notes = run.ranks()
    check_gang(notes, world, DIGITS)
    assert [note["peers"] for note in notes] == [[note["pid"] for note in notes]] * world  # gathered through torch itself
    assert notes[0]["accuracy"] > GOOD
    assert "SeparateWorlds" not in call(home, "events", "gang-1")[1]


def test_workers_that_formed_a_world_each_are_told_so_at_the_end(home: Path, python: str) -> None:
    run = run_gang(home, python, "auto", "python calls_apart.py", 2, 1, 1)

    assert run.code == 0, run.output
    for verb in ("why", "get"):
        assert "its tasks formed 2 separate worlds (of size 1)" in " ".join(call(home, verb, "gang-1")[1].split())
    assert "SeparateWorlds" in call(home, "events", "gang-1")[1]


def test_lightning_that_starts_its_own_processes_does_so_as_without_us(home: Path, python: str) -> None:
    """One task, and `devices=2`: Lightning itself starts the second rank."""
    home.mkdir()
    variables = [word for pair in ("EXPECT=2", "NODES=1", "DEVICES=2") for word in ("-e", pair)]
    program = str(PROGRAMS / "lightning_gang.py")
    code, output = call(home, "run", "--name", "alone", *variables, "--", python, program, timeout=240)

    assert code == 0, output
    check_gang(Run(code, output, home / "jobs" / "default" / "alone-1" / "shared").ranks(), 2, DIGITS)


@pytest.mark.parametrize("command", ["python ddp_gang.py", "python accelerate_gang.py"])
def test_processes_that_know_nothing_of_each_other_fail(home: Path, python: str, command: str) -> None:
    run = run_gang(home, python, "command", command, 2, 1, 2)

    assert run.code == 1, run.output
    assert "RANK is not set" in run.output or "1 ranks, expected 2" in run.output
    assert run.ranks() == []
