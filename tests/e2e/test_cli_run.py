"""`fairway run` on real processes: what it prints, what it returns, and what survives it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FAIRWAY = str(Path(sys.executable).with_name("fairway"))
COUNT = """
import sys, time
for number in range(int(sys.argv[1])):
    print("line", number, flush=True)
    time.sleep(0.02)
"""

TRAIN = """
import fairway, time
for step in range(1, 10**6):
    fairway.report(step=step, loss=1/step)
    if fairway.should_stop():
        break
    time.sleep(0.01)
"""


def test_the_output_of_a_command_is_its_own_byte_for_byte(desk) -> None:
    chance = random.Random(1)
    data = bytes(chance.randrange(256) for _ in range(200_000))
    (desk.folder / "data").write_bytes(data)
    desk.write(
        "show.py",
        "import os\ndata = open('data', 'rb').read()\nfor at in range(0, len(data), 7777): os.write(1, data[at:at+7777])\n",
    )
    ended = desk.type("run", "--", "python", "show.py")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == data
    assert desk.type("logs", "show").stdout == data


def test_it_runs_here_with_this_interpreter_and_this_environment(desk) -> None:
    desk.environment["MINE"] = "yes"
    program = (
        "import os, sys; print(os.getcwd(), os.environ['MINE'], os.path.dirname(sys.executable), os.environ['FAIRWAY_TASK'])"
    )
    ended = desk.type("run", "--", "python", "-c", program)
    bin_folder = desk.environment["PATH"].split(":")[0]
    assert ended.stdout.decode().split() == [str(desk.folder), "yes", bin_folder, "worker-0"]


def test_words_go_to_stderr_and_the_exit_code_tells(desk) -> None:
    good = desk.type("run", "--name", "good", "--", "python", "-c", "print('hi')")
    assert (good.returncode, good.stdout) == (0, b"hi\n")
    assert good.stderr.startswith(b"on local / default\n")
    bad = desk.type("run", "--name", "bad", "--", "python", "-c", "raise SystemExit(3)")
    assert (bad.returncode, bad.stdout) == (3, b"")
    last = bad.stderr.decode().splitlines()[-1]
    assert "failed" in last
    assert "worker-0 exited with 3" in last
    assert "fairway why bad-1" in last


def test_workers_are_told_apart(desk) -> None:
    desk.write("who.py", "import fairway\nprint('rank', fairway.rank(), 'of', fairway.world_size())\n")
    ended = desk.type("run", "--workers", "2", "--", "python", "who.py")
    assert sorted(ended.stdout.decode().splitlines()) == ["worker-0 | rank 0 of 2", "worker-1 | rank 1 of 2"]


def test_the_death_of_the_daemon_is_not_noticed(desk) -> None:
    desk.write("count.py", COUNT)
    desk.type("daemon", "start")
    running = subprocess.Popen(
        [FAIRWAY, "run", "--", "python", "count.py", "150"],
        cwd=desk.folder,
        env=desk.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    first = running.stdout.readline()
    os.kill(int(desk.type("daemon", "status", "-o", "name").stdout), signal.SIGKILL)
    out, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert (first + out).decode().splitlines() == [f"line {number}" for number in range(150)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_stopped(desk, number: int) -> None:
    desk.write("count.py", COUNT)
    running = subprocess.Popen(
        [FAIRWAY, "run", "--", "python", "count.py", "10000"],
        cwd=desk.folder,
        env=desk.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    running.stdout.readline()
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert b"was stopped" in said
    assert json.loads(desk.type("get", "count", "-o", "json").stdout)["phase"] == "Stopped"


def test_without_a_terminal_the_second_interrupt_stops(desk) -> None:
    desk.write(
        "deaf.py",
        "import time\nprint('ready', flush=True)\nwhile True:\n"
        "    try: time.sleep(1)\n    except KeyboardInterrupt: print('caught', flush=True)\n",
    )
    running = subprocess.Popen(
        [FAIRWAY, "run", "--", "python", "deaf.py"],
        cwd=desk.folder,
        env=desk.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    running.send_signal(signal.SIGINT)
    assert running.stdout.readline() == b"caught\n"
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"a second one stops it" in said
    assert json.loads(desk.type("get", "deaf", "-o", "json").stdout)["phase"] == "Stopped"


def test_an_interrupt_reaches_every_task_of_a_run(desk) -> None:
    desk.write("count.py", COUNT)
    running = subprocess.Popen(
        [FAIRWAY, "run", "-w", "2", "--retries", "2", "--", "python", "count.py", "10000"],
        cwd=desk.folder,
        env=desk.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    # A Python that has not started the program yet dies of SIGINT without a message, as without Fairway.
    begun: set[bytes] = set()
    while len(begun) < 2:
        begun.add(running.stdout.readline().split(b" ")[0])
    running.send_signal(signal.SIGINT)
    out, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"was stopped" in said
    assert out.count(b"KeyboardInterrupt") == 2


def test_a_stop_condition_ends_it_as_succeeded(desk) -> None:
    desk.write("train.py", TRAIN)
    ended = desk.type("run", "--stop-when", "loss < 0.1", "--", "python", "train.py")
    assert ended.returncode == 0, ended.stderr
    assert b"train-1 succeeded" in ended.stderr


def test_a_detached_run_can_be_waited_for_and_read(desk) -> None:
    desk.write("count.py", COUNT)
    name = desk.type("run", "-d", "--name", "away", "--", "python", "count.py", "20").stdout.decode().strip()
    assert name == "away-1"
    assert desk.type("wait", name, "--timeout", "60s").returncode == 0
    assert desk.type("logs", "away", "--tail", "2").stdout == b"line 18\nline 19\n"
    assert desk.type("logs", "away", "--grep", "line 1$").stdout == b"line 1\n"


def test_followed_logs_end_with_the_run(desk) -> None:
    desk.write("count.py", COUNT)
    name = desk.type("run", "-d", "--", "python", "count.py", "50").stdout.decode().strip()
    assert desk.type("logs", "-f", name).stdout.decode().splitlines() == [f"line {number}" for number in range(50)]


def test_a_document_is_run_and_changed_by_flags(desk) -> None:
    desk.write("who.py", "import fairway\nprint('rank', fairway.rank(), 'of', fairway.world_size())\n")
    desk.write("job.yaml", "kind: TrainingJob\nname: asked\ncode: .\ncommand: python who.py\n")
    assert desk.type("run", "job.yaml").stdout == b"rank 0 of 1\n"
    changed = desk.type("run", "job.yaml", "--workers", "2")
    assert sorted(changed.stdout.splitlines()) == [b"worker-0 | rank 0 of 2", b"worker-1 | rank 1 of 2"]
    assert desk.type("list", "asked", "-o", "name").stdout == b"asked-2\nasked-1\n"


def test_every_mistake_of_a_document_is_told_and_nothing_is_changed(desk) -> None:
    desk.write("job.yaml", "kind: TrainingJob\nname: mistaken\nroles:\n  worker: {replicas: two, comand: a}\n")
    ended = desk.type("submit", "job.yaml")
    assert ended.returncode == 2
    said = ended.stderr.decode()
    assert "job.yaml:4:22 roles.worker.replicas" in said
    assert "comand" in said
    assert "did you mean" in said
    assert json.loads(desk.type("list", "mistaken", "-o", "json").stdout)["total"] == 0


def test_a_command_beside_a_task_sees_what_it_sees(desk) -> None:
    desk.write("count.py", COUNT)
    name = desk.type("run", "-d", "-w", "2", "--", "python", "count.py", "3000").stdout.decode().strip()
    deadline = time.monotonic() + 30
    while json.loads(desk.type("get", name, "-o", "json").stdout)["phase"] != "Running":
        assert time.monotonic() < deadline
    beside = desk.type("exec", name, "--index", "1", "--", "sh", "-c", "echo $FAIRWAY_TASK in $PWD; exit 7")
    assert (beside.returncode, beside.stdout.decode()) == (7, f"worker-1 in {desk.folder}\n")
    assert desk.type("stop", "--now", "--wait", name).returncode == 0


def test_outputs_are_copied_out(desk, tmp_path: Path) -> None:
    desk.write("leave.py", "import fairway\n(fairway.output('model') / 'w.txt').write_text('weights')\n")
    assert desk.type("run", "--output", "model=mnist", "--", "python", "leave.py").returncode == 0
    assert desk.type("cp", "leave:outputs/model", str(tmp_path / "model")).returncode == 0
    assert (tmp_path / "model" / "w.txt").read_text() == "weights"


def test_the_first_job_of_init_runs(desk) -> None:
    assert desk.type("init", "--framework", "command", "first").returncode == 0
    desk.folder = desk.folder / "first"
    ended = desk.type("run", "job.yaml")
    assert ended.returncode == 0, ended.stderr
    assert b"worker-1 | worker 1 of 2: step 200" in ended.stdout
    assert b"first-1 succeeded" in ended.stderr
    found = json.loads(desk.type("get", "first", "-o", "json").stdout)
    assert found["progress"]["checkpoint_step"] == 200


def test_fake_gpus_are_taken_one_a_worker(own_desk) -> None:
    desk = own_desk
    desk.environment["FAIRWAY_FAKE_GPUS"] = "2xA100-80GB"
    program = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    ended = desk.type("run", "-w", "2", "--", "python", "-c", program)
    assert ended.returncode == 0, ended.stderr
    assert b"each worker takes one GPU of 2" in ended.stderr
    assert len({line.split(b" | ")[1] for line in ended.stdout.splitlines()}) == 2


def test_a_restart_is_told_while_it_happens_and_afterwards(desk) -> None:
    desk.write(
        "once.py",
        "import fairway\nif not fairway.attempt(): raise ValueError('bad label')\n",
    )
    ended = desk.type("run", "--name", "once", "--retries", "1", "--", "python", "once.py")
    assert ended.returncode == 0, ended.stderr
    told = [line for line in ended.stderr.decode().splitlines() if "starts again" in line]
    assert len(told) == 1
    assert "worker-0 exited with 1: ValueError: bad label" in told[0]
    assert "from which step is not known" in told[0]
    shown = desk.type("get", "once").stdout.decode()
    assert "1 restart of at most 1" in shown
    assert "from which step is not known" in shown


def test_top_shows_what_runs_really_use(desk) -> None:
    desk.write("spin.py", "held = b'x' * (200 << 20)\nprint('ready', flush=True)\nwhile True: pass\n")
    name = desk.type("run", "-d", "--cpus", "0.5", "--memory", "1Gi", "--", "python", "spin.py").stdout.decode().strip()
    deadline = time.monotonic() + 60
    while True:
        jobs = {job["name"]: job for job in json.loads(desk.type("top", "job", "-o", "json").stdout)["jobs"]}
        tasks = jobs.get(name, {}).get("tasks") or [{}]
        if (tasks[0].get("memory_used") or 0) > 200 << 20 and (tasks[0].get("cpu_used") or 0) > 0.1:
            break
        assert time.monotonic() < deadline, jobs
    assert (tasks[0]["cpu"], tasks[0]["memory"]) == (0.5, 1 << 30)
    assert " of 0.5 " in desk.type("top", "job").stdout.decode()
    assert " of 1 GiB" in desk.type("top", "job").stdout.decode()
    assert desk.type("stop", "--now", "--wait", name).returncode == 0


def test_without_a_terminal_it_says_once_why_it_waits(own_desk) -> None:
    desk = own_desk
    desk.environment["FAIRWAY_CPUS"] = "2"
    desk.write("hold.py", "import time\nprint('held', flush=True)\ntime.sleep(1000)\n")
    holding = desk.type("run", "-d", "--cpus", "2", "--", "python", "hold.py").stdout.decode().strip()
    waiting = subprocess.Popen(
        [FAIRWAY, "run", "--name", "later", "--cpus", "1", "--", "python", "-c", "print('at last')"],
        cwd=desk.folder,
        env=desk.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert waiting.stderr is not None
    said = b""
    while b"later-1 waits: " not in said:
        line = waiting.stderr.readline()
        assert line, said
        said += line
    assert desk.type("stop", "--now", "--wait", holding).returncode == 0
    out, rest = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (0, b"at last\n")
    assert (said + rest).count(b"waits: ") == 1


def test_serving_what_keeps_crashing_ends_with_its_last_lines(own_desk) -> None:
    desk = own_desk
    desk.write("server.py", "print('about to fail', flush=True)\nraise RuntimeError('no weights here')\n")
    ended = desk.type("serve", "--name", "bad", "--", "python", "server.py")
    assert ended.returncode == 1
    said = ended.stderr.decode()
    assert "RuntimeError: no weights here" in said
    assert "its server was started 3 times and ended each time" in said
    assert "fairway delete service/bad" in said
    assert desk.type("delete", "service/bad").returncode == 0
