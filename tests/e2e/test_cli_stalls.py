"""A run that hangs, one whose loss is NaN, and one that crashes in C: what the commands show of each."""

from __future__ import annotations

import json
import signal
import time

HANGS = """
import fairway, sys, time
print("begun", flush=True)
if fairway.rank() == 1:
    time.sleep(1000)
while True:
    pass
"""
LAUNCHER = """
import os, sys, time
if len(sys.argv) == 1:
    for rank in range(3):
        os.environ["RANK"] = str(rank)
        os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "launch.py", str(rank)])
    os.wait()
print("begun", sys.argv[1], flush=True)
while sys.argv[1] != "2":
    pass
time.sleep(1000)
"""
NOT_A_NUMBER = """
import fairway, time
for step in range(1, 10**6):
    fairway.report(step=step, loss=float("nan") if step > 5 else 1.0, accuracy=0.5)
    time.sleep(0.02)
"""


def wait_for(desk, name: str, reason: str) -> dict[str, str]:
    """Return the output of `why`, once it gives this reason."""
    deadline = time.monotonic() + 60
    while True:
        told = json.loads(desk.type("why", name, "-o", "json").stdout)
        if told["reason"] == reason:
            return told
        assert time.monotonic() < deadline, told


def test_a_hang_names_the_rank_that_does_nothing(own_desk) -> None:
    desk = own_desk
    desk.environment["FAIRWAY_STALL_AFTER"] = "3s"
    desk.write("hang.py", HANGS)
    name = desk.type("run", "-d", "-w", "2", "--", "python", "hang.py").stdout.decode().strip()
    told = wait_for(desk, name, "stalled")
    assert "worker-1 has used no CPU and printed nothing for" in told["message"]
    assert "while worker-0 waits" in told["message"]
    assert "--role worker --index 1" in told["what_would_help"]
    assert "seems to hang: worker-1" in desk.type("list").stdout.decode()
    assert desk.type("events", name).stdout.decode().count("Stalled") == 1
    assert json.loads(desk.type("get", name, "-o", "json").stdout)["phase"] == "Running", "it is never ended for that"
    assert desk.type("stop", "--now", "--wait", name).returncode == 0


def test_a_hang_below_a_launcher_names_the_rank_too(own_desk) -> None:
    desk = own_desk
    desk.environment["FAIRWAY_STALL_AFTER"] = "3s"
    desk.write("launch.py", LAUNCHER)
    name = desk.type("run", "-d", "--", "python", "launch.py").stdout.decode().strip()
    told = wait_for(desk, name, "stalled")
    assert "worker-0 rank 2 has used no CPU" in told["message"], told
    assert desk.type("stop", "--now", "--wait", name).returncode == 0


def test_a_loss_that_is_no_number_is_told_once(desk) -> None:
    desk.write("nan.py", NOT_A_NUMBER)
    name = desk.type("run", "-d", "--", "python", "nan.py").stdout.decode().strip()
    told = wait_for(desk, name, "nan")
    assert "loss is NaN since step 6" in told["message"]
    assert "learning rate" in told["what_would_help"]
    assert "loss nan" in desk.type("list", "nan").stdout.decode().lower()
    assert desk.type("events", name).stdout.decode().count("NotANumber") == 1
    assert desk.type("stop", "--now", "--wait", name).returncode == 0


def test_a_segmentation_fault_leaves_the_python_stack(desk) -> None:
    desk.write("fault.py", "import ctypes\ndef inner():\n    ctypes.string_at(0)\ninner()\n")
    ended = desk.type("run", "--", "python", "fault.py")
    assert ended.returncode == 128 + signal.SIGSEGV
    assert b'fault.py", line 3 in inner' in ended.stderr
    tail = json.loads(desk.type("why", "fault", "-o", "json").stdout)["tail"]
    assert 'fault.py", line 3 in inner' in tail
