"""Tasks that will not end, hide their children, or exceed their limits: all of them are ended, and this is reported."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import pytest
from daemon_home import DaemonHome, is_alive, kill

DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("heard and not heeded", flush=True))
with open(os.environ["MARKS"] + "/started", "a") as file:
    file.write(f'{os.environ["FAIRWAY_JOB"]}/{os.environ["FAIRWAY_TASK"]}#{os.environ["FAIRWAY_ATTEMPT"]} {os.getpid()}\\n')
while True:
    time.sleep(0.05)
"""

FAMILY = """
import os, signal, sys, time
marks = os.environ["MARKS"]

def settle(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open(f"{marks}/.{name}", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{marks}/.{name}", f"{marks}/family-{name}")
    while True:
        time.sleep(0.05)

if os.fork() == 0:
    settle("child")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        settle("daemon")      # double fork with its own session: an orphan
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c",
            "import os, signal, time; signal.signal(15, signal.SIG_IGN);"
            f"open('{marks}/family-stranger', 'w').write(str(os.getpid()));\\nwhile True: time.sleep(0.05)"], {})
    os._exit(0)               # the same, and without a trace of us in its environment
with open(f"{marks}/started", "a") as file:
    file.write(f'{os.environ["FAIRWAY_JOB"]}/{os.environ["FAIRWAY_TASK"]}#{os.environ["FAIRWAY_ATTEMPT"]} {os.getpid()}\\n')
while not os.path.exists(f'{marks}/go-{os.environ["FAIRWAY_JOB"]}'):
    time.sleep(0.01)
"""

GLUTTON = """
import os, time
with open(os.environ["MARKS"] + "/started", "a") as file:
    file.write(f'{os.environ["FAIRWAY_JOB"]}/{os.environ["FAIRWAY_TASK"]}#{os.environ["FAIRWAY_ATTEMPT"]} {os.getpid()}\\n')
kept = bytearray(int(os.environ["HUNGER"]) << 20)
for at in range(0, len(kept), 4096):
    kept[at] = 1
deadline = time.monotonic() + float(os.environ["SIT"])
while time.monotonic() < deadline:
    time.sleep(0.05)
"""


def program(home: DaemonHome, text: str) -> list[str]:
    path = home.work / "stubborn.py"
    path.write_text(text)
    return [sys.executable, "-I", "-S", str(path)]


def family(home: DaemonHome) -> dict[str, int]:
    """Return the descendants of the task that have settled."""
    paths = home.marks.glob("family-*")
    return {path.name.removeprefix("family-"): int(path.read_text() or 0) for path in paths}


def test_a_worker_that_ignores_sigterm_is_killed_after_its_grace(home: DaemonHome) -> None:
    run = home.submit(home.document("deaf", 1, *program(home, DEAF)))
    pids = home.until_started(f"{run}/worker-0#0")
    home.until_phase(run, "Running")
    began = time.monotonic()
    home.ask("stop", run, "--wait")
    took = time.monotonic() - began
    view = home.get(run)
    assert view["phase"] == "Stopped"
    assert took >= 1.0, "it had no grace"
    assert "heard and not heeded" in home.ask("logs", run)
    assert view["tasks"][0]["exit"] == "SIGKILL"
    assert not is_alive(pids[f"{run}/worker-0#0"])
    home.check_nothing_held()


def test_stop_now_gives_no_grace(home: DaemonHome) -> None:
    run = home.submit(home.document("deaf", 1, *program(home, DEAF), grace="10m"))
    pids = home.until_started(f"{run}/worker-0#0")
    home.ask("stop", run, "--now", "--wait")
    assert "heard and not heeded" not in home.ask("logs", run)
    assert not is_alive(pids[f"{run}/worker-0#0"])


def test_the_grace_goes_on_when_the_daemon_dies_in_it(home: DaemonHome) -> None:
    run = home.submit(home.document("deaf", 1, *program(home, DEAF)))
    pids = home.until_started(f"{run}/worker-0#0")
    home.until_phase(run, "Running")
    home.ask("stop", run)
    home.until(lambda: "not heeded" in (home.attempt(f"{run}/worker-0#0") / "out-0.log").read_text(), "the signal")
    home.kill_daemon()
    home.until(lambda: not is_alive(pids[f"{run}/worker-0#0"]), "its end without a daemon")
    assert not home.status()["running"]
    assert home.until_phase(run, "Stopped")["outcome"]["reason"] == "StoppedByUser"


def test_a_supervisor_that_was_halted_is_woken_to_end_its_task(home: DaemonHome) -> None:
    run = home.submit(home.document("halted", 1))
    pids = home.until_started(f"{run}/worker-0#0")
    home.until_phase(run, "Running")
    os.kill(home.supervisor(f"{run}/worker-0#0"), signal.SIGSTOP)
    home.ask("stop", run, "--wait")
    assert home.get(run)["phase"] == "Stopped"
    assert not is_alive(pids[f"{run}/worker-0#0"])
    home.check_nothing_held()


@pytest.mark.parametrize("end", ["stop", "exit", "delete"])
def test_nothing_that_a_task_started_outlives_it(home: DaemonHome, end: str) -> None:
    run = home.submit(home.document("family", 1, *program(home, FAMILY)))
    home.until_started(f"{run}/worker-0#0")
    relatives = home.until(lambda: len(found := family(home)) == 3 and all(found.values()) and found, "the family")
    assert all(is_alive(pid) for pid in relatives.values())
    if end == "stop":
        home.ask("stop", run, "--wait")
    elif end == "delete":
        home.ask("delete", run)
    else:
        home.tell(run)
        assert home.until_phase(run, "Succeeded")["tasks"][0]["exit_code"] == 0
    left = {name for name, pid in relatives.items() if is_alive(pid)}
    assert not left
    home.check_nothing_held()


def test_what_a_killed_supervisor_leaves_is_found_wherever_it_hides(home: DaemonHome) -> None:
    run = home.submit(home.document("family", 1, *program(home, FAMILY)))
    home.until_started(f"{run}/worker-0#0")
    relatives = home.until(lambda: len(found := family(home)) == 3 and all(found.values()) and found, "the family")
    kill(home.supervisor(f"{run}/worker-0#0"))
    home.until_phase(run, "Failed")
    # Nothing leads to `stranger` any more: it has left the session, the environment and, with its parent, the process tree.
    kill(relatives.pop("stranger"))
    assert not {name for name, pid in relatives.items() if is_alive(pid)}


@pytest.mark.timeout(180)
def test_a_task_over_its_memory_is_told_of_and_gets_half_as_much_again_once(home: DaemonHome) -> None:
    document = home.document("glutton", 1, *program(home, GLUTTON), restart={"max": 3})
    # 90 MiB do not fit into 70, but into one and a half times as much.
    document["env"] |= {"HUNGER": "90", "SIT": "4"}
    document["roles"]["worker"] |= {"limits": {"memory": "70Mi"}}
    run = home.submit(document)
    home.until_started(f"{run}/worker-0#1")
    view = home.get(run)
    assert (view["outcome"]["reason"], view["restarts"]) == ("OutOfMemory", 1)
    assert view["earlier"][0]["exit"] == "out of memory"
    assert home.until_phase(run, "Succeeded")["restarts"] == 1
    home.check_nothing_held()


@pytest.mark.timeout(180)
def test_a_task_that_is_never_full_is_given_up(home: DaemonHome) -> None:
    document = home.document("glutton", 1, *program(home, GLUTTON), restart={"max": 2, "backoff": "100ms"})
    document["env"] |= {"HUNGER": "200", "SIT": "60"}
    document["roles"]["worker"] |= {"limits": {"memory": "70Mi"}}
    run = home.submit(document)
    view = home.until_phase(run, "Failed")
    assert view["outcome"]["reason"] == "OutOfMemory"
    assert "worker-0" in view["outcome"]["message"]
    assert "memory" in view["outcome"]["message"]
    # The limit is raised once; a program that keeps growing does not get more memory each time.
    limits = [_limit(home, run, attempt) for attempt in range(view["attempt"] + 1)]
    assert limits[0] == 70 << 20
    assert set(limits[1:]) == {105 << 20}


def _limit(home: DaemonHome, run: str, attempt: int) -> int:
    text = (home.attempt(f"{run}/worker-0#{attempt}") / "order.json").read_bytes()
    return int(json.loads(text)["memory_limit"])
