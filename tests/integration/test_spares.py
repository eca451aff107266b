"""Spare interpreters that wait for the next start of a gang: used when one comes, and ended with the process they wait for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from daemon_home import DaemonHome, is_alive, kill

FRAMEWORK = """
import os
with open(os.environ["MARKS"] + "/imported", "a") as file:
    file.write(f"{os.getpid()}\\n")
"""
PROGRAM = """
import os, time
import torch
job, task, attempt = (os.environ["FAIRWAY_" + name] for name in ("JOB", "TASK", "ATTEMPT"))
with open(os.environ["MARKS"] + "/started", "a") as file:
    file.write(f"{job}/{task}#{attempt} {os.getpid()}\\n")
print(task, attempt, os.environ["MASTER_PORT"], os.environ["FAIRWAY_ATTEMPT_DIR"])
while not os.path.exists(os.environ["MARKS"] + f"/go-{job}"):
    time.sleep(0.01)
raise SystemExit(int(open(os.environ["MARKS"] + f"/go-{job}").read()))
"""


@pytest.fixture
def training(home: DaemonHome) -> str:
    """A run of two workers with a spare each."""
    framework = home.work / "site" / "torch"
    framework.mkdir(parents=True)
    (framework / "__init__.py").write_text(FRAMEWORK)
    (home.work / "code").mkdir()
    (home.work / "code" / "train.py").write_text(PROGRAM)
    document = home.document("train", 2, sys.executable, str(home.work / "code" / "train.py"))
    env = {**document["env"], "PYTHONPATH": str(framework.parent)}
    run = home.submit({**document, "env": env, "restart": {"max": 3, "backoff": "10ms", "spares": "now"}})
    home.until_started(f"{run}/worker-0#0", f"{run}/worker-1#0")
    home.until(lambda: len(warm(home)) == 2, "two warm spares")
    return run


def imported(home: DaemonHome) -> list[int]:
    path = home.marks / "imported"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def spares(home: DaemonHome) -> list[int]:
    found = []
    for pid in home.processes():
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if name == "fairway-spare":
            found.append(pid)
    return found


def warm(home: DaemonHome) -> list[int]:
    """Return the spares that have finished their imports and wait in a read."""
    known = imported(home)
    return [pid for pid in spares(home) if pid in known and sleeps(pid)]


def sleeps(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "S"
    except OSError:
        return False  # It ended meanwhile.


def restart(home: DaemonHome, run: str, attempt: int) -> dict[str, int]:
    """Kill a worker, and wait for the next attempt; return its processes."""
    kill(home.started()[f"{run}/worker-1#{attempt - 1}"])
    names = [f"{run}/worker-{index}#{attempt}" for index in range(2)]
    started = home.until_started(*names)
    return {name: started[name] for name in names}


def test_the_gang_goes_on_in_the_interpreters_that_waited(home: DaemonHome, training: str) -> None:
    waiting = set(warm(home))
    assert set(restart(home, training, 1).values()) == waiting
    view = home.until_phase(training, "Running")
    assert (view["restarts"], [task["attempt"] for task in view["tasks"]]) == (1, [1, 1])
    # They are full processes of the new attempt: log, exec, record, and the next pair of spares waits.
    log = home.ask("logs", training, "--attempt", "1", "--index", "1").split()
    assert log[:2] == ["worker-1", "1"]
    assert log[3] == str(home.attempt(f"{training}/worker-1#1"))
    assert home.ask("exec", training, "--", "sh", "-c", "echo $FAIRWAY_ATTEMPT").split() == ["1"]
    assert {found["pid"] for found in home.begun(f"{training}/worker-0#1")["processes"]} <= waiting
    home.until(lambda: len(warm(home)) == 2, "the next two spares")
    home.tell(training, "7")
    view = home.until(lambda: (seen := home.get(training))["phase"] == "Failed" and seen, "the end")
    assert 7 in {task["exit_code"] for task in (*view["earlier"], *view["tasks"]) if task["attempt"] == 1}
    home.check_nothing_held()
    assert spares(home) == []


def test_a_stopped_run_has_none(home: DaemonHome, training: str) -> None:
    home.ask("stop", training, "--wait")
    home.until(lambda: not spares(home), "the end of the spares")
    home.check_nothing_held()


def test_they_end_with_the_daemon_however_it_dies_and_the_run_goes_on(home: DaemonHome, training: str) -> None:
    before = home.started()
    home.kill_daemon()
    home.until(lambda: not spares(home), "the end of the spares")
    assert all(is_alive(pid) for pid in before.values())
    home.start_daemon()
    after = restart(home, training, 1)
    assert set(after.values()).isdisjoint(before.values())
    home.tell(training)
    home.until_phase(training, "Succeeded")
    home.check_nothing_held()


def test_a_killed_spare_or_standby_is_not_missed(home: DaemonHome, training: str) -> None:
    one, other = warm(home)
    kill(one)
    kill(int(Path(f"/proc/{other}/stat").read_text().split()[3]))
    home.until(lambda: not is_alive(other), "the end of the spare whose standby was killed")
    assert {one, other}.isdisjoint(restart(home, training, 1).values())
    home.tell(training)
    home.until_phase(training, "Succeeded")
    home.check_nothing_held()


def test_a_changed_program_gets_a_new_interpreter(home: DaemonHome, training: str) -> None:
    waiting = warm(home)
    path = home.work / "code" / "train.py"
    path.write_text("import os\nos.environ['NEW'] = '1'\n" + PROGRAM)
    assert set(restart(home, training, 1).values()).isdisjoint(waiting)
    assert not any(is_alive(pid) for pid in waiting)
    home.tell(training)
    home.until_phase(training, "Succeeded")
    home.check_nothing_held()


def test_after_the_kill_of_its_supervisor_nothing_is_left_of_such_a_process(home: DaemonHome, training: str) -> None:
    pids = restart(home, training, 1)
    kill(home.supervisor(f"{training}/worker-0#1"))
    home.until(lambda: not is_alive(pids[f"{training}/worker-0#1"]), "the end of the worker")
    home.until_started(f"{training}/worker-0#2", f"{training}/worker-1#2")
    home.tell(training)
    home.until_phase(training, "Succeeded")
    home.check_nothing_held()
