"""Runs are preempted and resumed on a real engine, with a trainer that saves: no run loses more than one checkpoint interval."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping

import pytest
from daemon_home import DaemonHome

EVERY = 20
"""Steps between two checkpoints."""

TRAINER = """
import os, sys, time
import fairway
EVERY = int(sys.argv[1])
job, task, attempt = (os.environ["FAIRWAY_" + name] for name in ("JOB", "TASK", "ATTEMPT"))
begin = fairway.checkpoint.latest()
step = begin.step if begin else 0
steps = open(os.environ["MARKS"] + f"/steps-{job}-{task}", "a", buffering=1)
steps.write(f"begin {attempt} {step} of {fairway.world_size()}\\n")
while not os.path.exists(os.environ["MARKS"] + f"/go-{job}"):
    step += 1
    steps.write(f"step {step}\\n")
    fairway.report(step=step, loss=1 / step)
    if step % EVERY == 0 and task == "worker-0":
        with fairway.checkpoint.save(step) as folder:
            (folder / "weights").write_text("w" * 1000)
    time.sleep(0.02)
"""
"""Counts steps, each recorded, and saves at an interval; resumes from its checkpoint."""


@pytest.fixture
def machine(home: DaemonHome) -> DaemonHome:
    (home.work / "trainer.py").write_text(TRAINER)
    home.environment["FAIRWAY_FAKE_GPUS"] = "4xA100"
    return home


def train(home: DaemonHome, name: str, replicas: object = 1, *, gpu: str = "1", **more: object) -> str:
    """Submit the trainer; return its run's name."""
    document = home.document(
        name,
        1,
        sys.executable,
        str(home.work / "trainer.py"),
        str(EVERY),
        role={"processes": 1, "resources": {"cpu": 1, "gpu": gpu}},
        **more,
    )
    document["roles"]["worker"]["replicas"] = replicas  # type: ignore[index]
    return home.submit(document)


def story(home: DaemonHome, run: str, task: str = "worker-0") -> list[tuple[int, int, int]]:
    """Return what the task did in each attempt: the step it began after, its last step, and the number of tasks."""
    told: list[tuple[int, int, int]] = []
    for line in (home.marks / f"steps-{run}-{task}").read_text().splitlines():
        words = line.split()
        if words[0] == "begin":
            told.append((int(words[2]), int(words[2]), int(words[4])))
        else:
            told[-1] = (told[-1][0], int(words[1]), told[-1][2])
    return told


def saved(home: DaemonHome, run: str) -> Mapping[str, object]:
    """Wait until the scheduler knows of a checkpoint of the run."""
    home.until(lambda: home.get(run)["progress"]["checkpoint_step"], f"a checkpoint of {run}")
    found: Mapping[str, object] = home.get(run)
    return found


def check_losses(home: DaemonHome, run: str) -> None:
    """Assert that every attempt began at most one interval before the end of the previous one."""
    told = story(home, run)
    assert len(told) > 1, f"{run} did not start again: {told}"
    for before, after in itertools.pairwise(told):
        assert before[1] - after[0] <= EVERY + 1, f"{run} lost more than an interval: {told}"


def test_an_urgent_run_takes_the_place_of_another_which_goes_on_later(machine: DaemonHome) -> None:
    low = train(machine, "low", gpu="4")
    saved(machine, low)
    high = train(machine, "high", gpu="2", priority=10)
    machine.until_phase(high, "Running")
    waiting = machine.get(low)
    assert waiting["phase"] == "Pending"
    assert waiting["restarts"] == 0, "making room is nobody's failure"
    assert "GPUs" in waiting["hold"]["message"]
    machine.tell(high)
    machine.until_phase(low, "Running")
    machine.until(lambda: len(story(machine, low)) == 2 and story(machine, low)[1][1] > story(machine, low)[1][0], "new steps")
    machine.tell(low)
    machine.until_phase(low, "Succeeded")
    check_losses(machine, low)
    assert "makes room for high-1" in machine.ask("events", low)
    machine.check_nothing_held()


@pytest.mark.slow
def test_an_elastic_run_shrinks_for_another_and_grows_again(machine: DaemonHome) -> None:
    elastic = train(machine, "elastic", {"min": 1, "max": 4})
    saved(machine, elastic)
    assert story(machine, elastic)[0][2] == 4
    other = train(machine, "other", gpu="2")
    machine.until_phase(other, "Running")
    machine.until(lambda: [part[2] for part in story(machine, elastic)] == [4, 2], "the run to go on with two workers")
    saved(machine, elastic)
    machine.tell(other)
    machine.until(lambda: [part[2] for part in story(machine, elastic)] == [4, 2, 4], "the run to grow again", within=100)
    machine.until(lambda: story(machine, elastic)[2][1] > story(machine, elastic)[2][0], "new steps")
    machine.tell(elastic)
    machine.until_phase(elastic, "Succeeded")
    check_losses(machine, elastic)
    machine.check_nothing_held()


def test_what_a_queue_borrowed_is_given_back(machine: DaemonHome) -> None:
    documents = "\n---\n".join(json.dumps({"kind": "JobQueue", "name": name}) for name in ("left", "right"))
    machine.ask("apply", "-f", "-", say=documents)
    borrower = train(machine, "borrower", gpu="2", queue="left")
    second = train(machine, "second", gpu="2", queue="left")
    saved(machine, borrower)
    saved(machine, second)
    owner = train(machine, "owner", gpu="2", queue="right")
    machine.until_phase(owner, "Running")
    phases = sorted(machine.get(name)["phase"] for name in (borrower, second))
    assert phases == ["Pending", "Running"], "one of the two gave its places back, the other kept what is its queue's"
    for name in (owner, borrower, second):
        machine.tell(name)
        machine.until_phase(name, "Succeeded")
    evicted = next(name for name in (borrower, second) if len(story(machine, name)) > 1)
    check_losses(machine, evicted)
    machine.check_nothing_held()


def test_a_run_moves_aside_when_asked_and_goes_on_there(machine: DaemonHome) -> None:
    machine.environment["FAIRWAY_FAKE_GPUS"] = "2xA100"
    halves = [train(machine, f"half{number}", gpu="0.5") for number in range(4)]
    for run in halves:
        saved(machine, run)
    homes = {run: machine.get(run)["tasks"][0]["devices"] for run in halves}
    # One of each pair ends: half of each GPU is free, but no whole one.
    stays, leaves = halves[0], next(run for run in halves if homes[run] == homes[halves[0]] and run != halves[0])
    other, ends = (run for run in halves if homes[run] != homes[stays])
    for run in (leaves, ends):
        machine.tell(run)
        machine.until_phase(run, "Succeeded")
    whole = train(machine, "whole", gpu="1")
    machine.until(lambda: machine.get(whole)["hold"], "the reason of the wait")
    assert whole in machine.ask("defragment", "--plan")
    assert machine.get(whole)["phase"] == "Pending", "--plan changes nothing"
    machine.ask("defragment")
    machine.until_phase(whole, "Running")
    moved = machine.until(lambda: next((run for run in (stays, other) if len(story(machine, run)) == 2), None), "a run to move")
    machine.until_phase(moved, "Running")
    machine.until(lambda: story(machine, moved)[1][1] > story(machine, moved)[1][0], "new steps")
    assert machine.get(stays)["tasks"][-1]["devices"] == machine.get(other)["tasks"][-1]["devices"], "side by side now"
    check_losses(machine, moved)
    for run in (stays, other, whole):
        machine.tell(run)
        machine.until_phase(run, "Succeeded")
    machine.check_nothing_held()
