"""What `fairway run` leaves unchanged: the two streams, the exit code, whole lines."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FAIRWAY = str(Path(sys.executable).with_name("fairway"))
BOTH = """
import os, sys
for number in range(2000):
    os.write(1, b"out %d\\n" % number)
    os.write(2, b"err %d\\n" % number)
os.write(2, b"half a line")
"""


def test_output_and_error_stay_apart(desk) -> None:
    desk.write("both.py", BOTH)
    with (desk.folder / "out").open("wb") as out, (desk.folder / "err").open("wb") as err:
        ended = subprocess.run(
            [FAIRWAY, "run", "-q", "--", "python", "both.py"],
            cwd=desk.folder, env=desk.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False, timeout=100,
        )  # fmt: skip
    assert ended.returncode == 0
    bare = subprocess.run([sys.executable, "both.py"], cwd=desk.folder, capture_output=True, check=True)
    assert (desk.folder / "out").read_bytes() == bare.stdout
    assert (desk.folder / "err").read_bytes() == bare.stderr
    kept = desk.type("logs", "both").stdout
    assert [line for line in kept.splitlines() if line.startswith(b"out")] == bare.stdout.splitlines()
    assert [line for line in kept.splitlines() if line.startswith((b"err", b"half"))] == bare.stderr.splitlines()


def test_without_quiet_the_words_of_fairway_are_on_stderr_too(desk) -> None:
    ended = desk.type("run", "--name", "said", "--", "python", "-c", "import sys; print('o'); print('e', file=sys.stderr)")
    assert ended.stdout == b"o\n"
    assert b"\ne\n" in ended.stderr
    assert b"said-1 succeeded" in ended.stderr


def test_where_both_lead_to_one_place_their_order_is_exact(desk) -> None:
    desk.write("both.py", BOTH)
    ended = subprocess.run(
        [FAIRWAY, "run", "-q", "--", "python", "both.py"],
        cwd=desk.folder, env=desk.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False, timeout=100,
    )  # fmt: skip
    lines = [f"{stream} {number}" for number in range(2000) for stream in ("out", "err")]
    assert ended.stdout.decode().splitlines() == [*lines, "half a line"]


def test_a_traceback_follows_what_was_printed_before_it(desk) -> None:
    ended = desk.type("run", "--name", "broken", "--", "python", "-c", "print('before'); raise ValueError('no')")
    assert (ended.returncode, ended.stdout) == (1, b"before\n")
    assert b"ValueError: no" in ended.stderr
    assert desk.type("logs", "broken").stdout.splitlines()[0::3] == [b"before", b"ValueError: no"]


@pytest.mark.parametrize(
    ("program", "code"),
    [
        pytest.param("raise SystemExit(3)", 3, id="its own"),
        pytest.param("raise SystemExit(2)", 2, id="bad usage of the program"),
        pytest.param("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL, id="killed"),
        pytest.param("import os; os.abort()", 128 + signal.SIGABRT, id="aborted"),
    ],
)
def test_the_exit_code_is_the_programs_own(desk, program: str, code: int) -> None:
    assert desk.type("run", "--name", "code", "--", "python", "-c", program).returncode == code


def test_a_program_that_is_not_there_is_127_and_one_that_cannot_run_126(desk) -> None:
    assert desk.type("run", "--", "no-such-program").returncode == 127
    desk.write("plain.txt", "no program\n")
    assert desk.type("run", "--name", "plain", "--", "./plain.txt").returncode == 126


def test_what_fairway_cannot_start_is_125(desk) -> None:
    desk.write("requirements.txt", "no such == requirement ==\n")
    ended = desk.type("run", "--name", "never", "--requirements", "requirements.txt", "--", "python", "-c", "print(1)")
    assert ended.returncode == 125, ended.stderr
    assert ended.stdout == b""


def test_several_tasks_give_1_and_json_has_every_code(desk) -> None:
    desk.write("each.py", "import fairway\nprint('hello')\nraise SystemExit(7 if fairway.rank() else 0)\n")
    ended = desk.type("run", "-o", "json", "-w", "2", "--", "python", "each.py")
    assert ended.returncode == 1
    tasks = {task["name"]: task["exit_code"] for task in json.loads(ended.stdout)["tasks"]}
    assert tasks["worker-1"] == 7
    assert b"worker-1 | hello" in ended.stderr


TORN = """
import os, sys
if len(sys.argv) == 1:
    children = [os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "torn.py", str(n)]) for n in range(4)]
    for child in children:
        os.waitpid(child, 0)
else:
    for number in range(2000):
        print("rank", sys.argv[1], "says", number)
"""


def test_lines_of_processes_that_share_a_stream_are_whole(desk) -> None:
    desk.write("torn.py", TORN)
    desk.environment.pop("PYTHONUNBUFFERED", None)
    lines = desk.type("run", "--", "python", "torn.py").stdout.decode().splitlines()
    assert sorted(lines) == sorted(f"rank {rank} says {number}" for rank in range(4) for number in range(2000))


@pytest.mark.parametrize(("flags", "variables"), [(["-u"], {}), ([], {"PYTHONUNBUFFERED": "1"})])
def test_who_asks_for_no_buffer_has_none(desk, flags: list[str], variables: dict[str, str]) -> None:
    desk.environment |= variables
    ended = desk.type("run", "--", "python", *flags, "-c", "import sys; print(sys.stdout.write_through)")
    assert ended.stdout == b"True\n"


def test_the_users_own_sitecustomize_is_loaded(desk) -> None:
    (desk.folder / "lib").mkdir()
    desk.environment.pop("PYTHONUNBUFFERED", None)
    desk.write("lib/sitecustomize.py", "import sys\nsys.mine = __file__\n")
    desk.environment["PYTHONPATH"] = str(desk.folder / "lib")
    program = "import sys, sitecustomize; print(sys.mine == sitecustomize.__file__, sys.stdout.line_buffering)"
    assert desk.type("run", "--", "python", "-c", program).stdout == b"True True\n"
    del desk.environment["PYTHONPATH"]
    ended = desk.type("run", "--", "python", "-c", "import sys; print('sitecustomize' in sys.modules)")
    assert (ended.stdout, ended.returncode) == (b"False\n", 0)
