"""The first process of a container, run for real: what it starts, ends and prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import fairway
from fairway.runtime.pod import termination_message
from fairway.runtime.pod.pod_order import VARIABLE, PodOrder, ProcessStart

SOURCE = str(Path(fairway.__file__).parent.parent)


def python(code: str, **env: str) -> ProcessStart:
    return ProcessStart([sys.executable, "-c", code], env, [])


def order(folder: Path, *starts: ProcessStart, grace: float = 30.0) -> PodOrder:
    return PodOrder("worker-0", str(folder), str(folder / "attempt"), list(starts), grace=grace)


def begin(told: PodOrder, **more: str) -> subprocess.Popen[str]:
    env = {**os.environ, **more, VARIABLE: told.encode(), "PYTHONPATH": SOURCE}
    return subprocess.Popen(
        [sys.executable, "-m", "fairway.runtime.pod"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(told: PodOrder, **more: str) -> tuple[int, str]:
    running = begin(told, **more)
    printed, _ = running.communicate(timeout=30)
    return running.returncode, printed


def lives(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_task_of_one_process_prints_and_ends_as_its_program_does(tmp_path: Path) -> None:
    assert finish(order(tmp_path, python("print('trained')"))) == (0, "trained\n")
    assert finish(order(tmp_path, python("raise SystemExit(3)")))[0] == 3


def test_what_is_read_for_metrics_is_printed_all_the_same(tmp_path: Path) -> None:
    told = order(tmp_path, python("import sys\nprint('loss 1')\nsys.stdout.flush()\nsys.stderr.write('no end')"))
    told.pattern = "loss (?P<loss>.*)"
    assert finish(told) == (0, "loss 1\nno end")


def test_a_flood_that_is_looked_at_for_metrics_arrives_whole(tmp_path: Path) -> None:
    told = order(tmp_path, python("for number in range(50_000): print(number, 'loss=0.5', flush=number % 7 == 0)"))
    told.detects = True
    code, printed = finish(told)
    assert code == 0
    assert printed.splitlines() == [f"{number} loss=0.5" for number in range(50_000)]


def test_lines_of_the_second_process_are_marked(tmp_path: Path) -> None:
    code, printed = finish(order(tmp_path, python("print('one')"), python("print('two')")))
    assert code == 0
    assert sorted(printed.splitlines()) == ["[worker-0.1] two", "one"]


def test_when_one_process_fails_the_others_are_ended(tmp_path: Path) -> None:
    stays = python("import time\ntime.sleep(600)")
    assert finish(order(tmp_path, stays, python("raise SystemExit(7)")))[0] == 7


def test_a_process_ended_by_a_signal_gives_128_and_its_number(tmp_path: Path) -> None:
    killed = python("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert finish(order(tmp_path, killed))[0] == 128 + signal.SIGKILL


def test_sigterm_is_passed_on_and_what_the_program_makes_of_it_counts(tmp_path: Path) -> None:
    saves = python(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    running = begin(order(tmp_path, saves))
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    assert running.returncode == 75


def test_who_does_not_listen_is_killed_after_the_grace_with_all_it_started(tmp_path: Path) -> None:
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    deaf = python(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    running = begin(order(tmp_path, deaf, grace=0.2))
    assert running.stdout is not None
    pid = int(running.stdout.readline())
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    assert running.returncode == 128 + signal.SIGKILL
    assert not lives(pid)


def test_children_begin_with_signals_as_usual(tmp_path: Path) -> None:
    looks = python("import signal\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGTERM).name)")
    assert finish(order(tmp_path, looks)) == (0, "set() SIG_DFL\n")


def test_a_missing_program_is_said_with_the_place_to_look(tmp_path: Path) -> None:
    code, printed = finish(order(tmp_path, ProcessStart(["no-such-program"], {}, [])))
    assert code == 127
    assert "worker-0 could not start 'no-such-program': No such file or directory; is it in the image?" in printed


def test_files_and_folders_are_there_before_the_start(tmp_path: Path) -> None:
    told = order(tmp_path, python("print(open('attempt/a/b.txt').read(), __import__('os').listdir('made'))"))
    told.files["a/b.txt"] = "hello"
    told.folders.append(str(tmp_path / "made"))
    assert finish(told) == (0, "hello []\n")


def test_defaults_give_way_and_the_python_path_is_joined(tmp_path: Path) -> None:
    shows = ProcessStart(
        [sys.executable, "-c", "import os; print(os.environ['A'], os.environ['B'], os.environ['PYTHONPATH'].split(':')[0])"],
        {"A": "ours", "B": "ours", "PYTHONPATH": "/in/front"},
        ["A"],
    )
    assert finish(order(tmp_path, shows), A="theirs", B="theirs") == (0, "theirs ours /in/front\n")


def test_an_order_and_an_end_survive_being_text() -> None:
    order = PodOrder("worker-1", "/code", "/a", [ProcessStart(["x", "é"], {"K": "V"}, ["K"])], {"f": "t"}, ["/d"], 4.5)
    again = PodOrder.decode(order.encode())
    assert again.encode() == order.encode()
    assert termination_message.decode(termination_message.encode("worker-1", 2, None, 9, "w")) == {
        "task": "worker-1",
        "rank": 2,
        "code": None,
        "signal": 9,
        "words": "w",
    }
    assert termination_message.decode("something a program wrote") is None
    assert termination_message.decode('{"code": 1}') is None


def test_a_program_that_asks_should_stop_saves_before_sigterm_comes(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    asks = python(
        "import time, fairway\n"
        "print('up', fairway.should_stop(), flush=True)\n"
        "while not fairway.should_stop():\n"
        "    time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "print('saved', flush=True)",
        FAIRWAY_SHARED_DIR=str(tmp_path / "shared"),
        FAIRWAY_ATTEMPT_DIR=str(tmp_path / "attempt"),
        FAIRWAY_JOB="mnist-7",
    )
    running = begin(order(tmp_path, asks))
    assert running.stdout is not None
    assert running.stdout.readline() == "up False\n"
    running.send_signal(signal.SIGTERM)
    printed, _ = running.communicate(timeout=30)
    assert (running.returncode, printed) == (0, "saved\n")
