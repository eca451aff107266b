"""The TensorFlow examples, on real digits, with real processes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from gang import DIGITS, EXAMPLES, GOOD, Run, call, check_gang, run_alone, run_example, wait_until

pytestmark = pytest.mark.framework("tensorflow")


def is_alive(pid: int) -> bool:
    """Whether the process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_asynchronous_parameter_servers(home: Path, python: str) -> None:
    run = run_example(home, "10-tensorflow-ps-async", "--python", python)

    assert run.code == 0, run.output
    chief = run.note("chief-0")
    workers = [run.note(f"worker-{index}") for index in range(2)]
    assert [note["world_size"] for note in workers] == [2, 2]
    # The chief's note records which process computed which batch: it must have been the two workers, both of them, and no other.
    assert {int(pid) for pid in chief["samples"]} == {note["pid"] for note in workers}
    batches = [batch for computed in chief["samples"].values() for batch in computed]
    for epoch in range(6):
        assert sorted(i for at, ids in batches if at == epoch for i in ids) == list(DIGITS)  # each sample once an epoch
    assert chief["updates"] == chief["batches"] == len(batches)
    assert chief["accuracy"] > GOOD
    assert "at step 276" in run.output
    # These processes never end by themselves: the job ends them.
    assert not any(is_alive(run.note(name)["pid"]) for name in ("chief-0", "worker-0", "worker-1", "ps-0"))


@pytest.mark.timeout(200)
def test_a_killed_worker_starts_again_and_nothing_is_lost(home: Path, python: str) -> None:
    document = EXAMPLES / "10-tensorflow-ps-async" / "job.yaml"
    code, output = call(home, "run", "--detach", str(document), "--python", python, "--env", "EPOCHS=25")
    assert code == 0, output
    job = home / "jobs" / "default" / "tf-ps-async-1"
    reports = job / "attempts" / "chief-0-0" / "metrics-0.jsonl"
    wait_until(lambda: reports.exists() and reports.stat().st_size > 0)
    os.kill(Run(0, "", job / "shared").note("worker-1")["pid"], signal.SIGKILL)

    code, output = call(home, "wait", "tf-ps-async-1", timeout=80)
    assert code == 0, output
    chief = Run(0, "", job / "shared").note("chief-0")
    assert chief["updates"] >= chief["batches"] == 25 * 46  # a batch that was in flight counts twice
    assert chief["accuracy"] > GOOD
    attempts = sorted(path.name for path in (job / "attempts").iterdir())
    assert attempts == ["chief-0-0", "ps-0-0", "worker-0-0", "worker-1-0", "worker-1-1"]


def test_synchronous_parameter_servers(home: Path, python: str) -> None:
    run = run_example(home, "11-tensorflow-ps-sync", "--python", python)

    assert run.code == 0, run.output
    check_gang(run.ranks(), 2, DIGITS)
    assert [(note["steps"], note["given"]) for note in run.ranks()] == [(250, 250)] * 2  # one gradient a step from each
    assert run.note("rank-0")["accuracy"] > GOOD
    assert "at step 250" in run.output


@pytest.mark.parametrize("name", ["10-tensorflow-ps-async", "11-tensorflow-ps-sync"])
def test_without_peers_parameter_servers_refuse(tmp_path: Path, python: str, name: str) -> None:
    ended = run_alone(tmp_path, name, python)

    assert ended.code == 1, ended.output
    assert "TF_CONFIG names no parameter servers" in ended.output
    assert list(tmp_path.glob("*.json")) == []


def test_a_program_that_knows_only_flags(home: Path, python: str) -> None:
    run = run_example(home, "12-tensorflow-between-graph", "--python", python)

    assert run.code == 0, run.output
    notes = run.ranks()
    check_gang(notes, 2, DIGITS, synchronous=False)
    # One counter on the parameter server counts the updates of all workers.
    assert sum(note["local_steps"] for note in notes) == max(note["steps"] for note in notes) >= 600
    assert all(note["local_steps"] > 0 and note["accuracy"] > GOOD for note in notes)
    assert re.search(r"succeeded .* at step [1-9]", run.output)  # read from its output


def test_a_worker_of_its_own_is_no_gang(home: Path, python: str) -> None:
    alone = run_example(home, "12-tensorflow-between-graph", "--python", python, "--workers", "1")

    assert alone.code == 0, alone.output
    with pytest.raises(AssertionError, match="number of peers"):
        check_gang(alone.ranks(), 2, DIGITS, synchronous=False)


def test_mirrored_workers(home: Path, python: str) -> None:
    run = run_example(home, "13-tensorflow-multiworker", "--python", python)

    assert run.code == 0, run.output
    check_gang(run.ranks(), 2, DIGITS)
    assert run.note("rank-0")["accuracy"] > GOOD
    assert "at step 184" in run.output


def test_mirrored_workers_without_peers_are_no_gang(home: Path, python: str) -> None:
    apart = run_example(home, "13-tensorflow-multiworker", "--python", python, "--framework", "command")

    assert apart.code == 0, apart.output
    with pytest.raises(AssertionError, match="number of peers"):
        check_gang(apart.ranks(), 2, DIGITS)
