"""Twelve failures under three launchers: `why` names the rank, the cause, and a fix that works when it is pasted."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gang import FAIRWAY, ROOT, call, environment, wait_until

PROGRAM = Path(__file__).with_name("programs") / "failing.py"
SAMPLED = 6
"""The cases in every test run; `make soak` runs all."""


@dataclass(frozen=True)
class Failure:
    """One way to fail, and the expected output of `why`."""

    way: str
    cause: str
    """A pattern that the message must match."""
    fix: str
    """A pattern that the advice must match."""
    role: dict[str, Any] = field(default_factory=dict)
    """Fields of the role besides its command."""
    flags: str = ""
    """Arguments that are appended to the command."""
    running: bool = False
    """Whether the run continues, so that `why` is called while it runs."""


FAILURES = (
    Failure("missing_module", r"ModuleNotFoundError.*no_such_module_of_ours", r"--python|environment\.requirements"),
    Failure("memory", r"memory", r"limits\.memory", {"limits": {"memory": "800Mi"}}),
    Failure("port", r"Address already in use", r"port"),
    Failure("missing_file", r"FileNotFoundError.*data/train\.csv", r"data/train\.csv"),
    Failure("not_a_number", r"loss is nan", r"learning rate|gradient"),
    Failure("hang", r"(worker-1|rank 1) has used no CPU", r"fairway (stop|exec|logs)", running=True),
    Failure("segfault", r"SIGSEGV|Segmentation fault", r"stack"),
    Failure("world_size", r"world size 2 does not match", r"workers|replicas|processes"),
    Failure("disk_full", r"No space left on device", r"space"),
    Failure("gpu_memory", r"CUDA out of memory", r"batch"),
    Failure("bad_flag", r"unrecognized arguments: --learnig-rate", r"--learning-rate is", flags=" --learnig-rate 0.1"),
    Failure("killed", r"SIGKILL|signal 9|Killed", r"memory|kill"),
)
LAUNCHERS = {
    "python": ("torch", "python failing.py", 2),
    "torchrun": ("torch", "torchrun --nproc-per-node 2 failing.py", 1),
    "mpirun": ("mpi", "mpirun -n 2 python failing.py", 1),
}
CASES = [(failure, launcher) for failure in FAILURES for launcher in LAUNCHERS]
SAMPLE = random.Random(15).sample(CASES, SAMPLED)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def interpreter(name: str) -> str:
    """Return the interpreter of a framework's environment; the test is skipped where it cannot be created, but never in CI."""
    made = subprocess.run([ROOT / "scripts" / "framework-venv", name], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode and not os.environ.get("CI"):
        pytest.skip(f"the environment of {name} cannot be installed here")
    assert made.returncode == 0, f"scripts/framework-venv {name} failed"
    return made.stdout.strip()


def named(cases: list[tuple[Failure, str]]) -> list[Any]:
    """Return parameters with readable ids."""
    return [pytest.param(failure, launcher, id=f"{failure.way}-{launcher}") for failure, launcher in cases]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("failure", "launcher"), named(SAMPLE))
def test_why_names_cause_and_fix(home: Path, tmp_path: Path, taken_port: int, failure: Failure, launcher: str) -> None:
    check(home, tmp_path, taken_port, failure, launcher)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("failure", "launcher"), named([case for case in CASES if case not in SAMPLE]))
def test_why_names_cause_and_fix_of_the_others(
    home: Path, tmp_path: Path, taken_port: int, failure: Failure, launcher: str
) -> None:
    check(home, tmp_path, taken_port, failure, launcher)


def check(home: Path, folder: Path, port: int, failure: Failure, launcher: str) -> None:
    """Let the program fail, read the explanation, remove the fault, paste the advice, and see it succeed."""
    code, mended = folder / "code", folder / "mended"
    code.mkdir()
    shutil.copy(PROGRAM, code)
    document = code / "job.yaml"
    document.write_text(json.dumps(described(failure, launcher, port, mended)))
    answer = fails(home, code, failure)
    said = f"{answer['message']}\n{answer['what_would_help']}"

    assert re.search(r"rank 1\b|worker-1", said), said
    assert re.search(failure.cause, answer["message"]), said
    assert re.search(failure.fix, answer["what_would_help"]), said
    if failure.way not in ("memory", "bad_flag"):
        # The advice itself gives more memory and corrects the flag; every other fault is removed by the program's own switch.
        mended.touch()
    paste(home, code, answer["what_would_help"])


def described(failure: Failure, launcher: str, port: int, mended: Path) -> dict[str, Any]:
    """Return the job's document."""
    framework, command, replicas = LAUNCHERS[launcher]
    return {
        "kind": "TrainingJob",
        "name": "failing",
        "code": ".",
        "environment": {"python": interpreter(framework)},
        "env": {"TAKEN_PORT": str(port)},
        "roles": {
            "worker": {"replicas": replicas, "command": f"{command} {failure.way} {mended}{failure.flags}", **failure.role}
        },
        "restart": {"max": 0},
        "grace": "2s",
    }


def fails(home: Path, code: Path, failure: Failure) -> dict[str, Any]:
    """Submit the job, and return the output of `why` for its failure."""
    ended = in_folder(home, code, "submit", "job.yaml")
    assert ended.returncode == 0, ended.stderr
    if failure.running:
        wait_until(lambda: bool(re.search(failure.cause, why(home)["message"])), 120)
    else:
        call(home, "wait", "failing", timeout=120)
    return why(home)


def why(home: Path) -> dict[str, Any]:
    """Return the JSON output of `fairway why`."""
    _, output = call(home, "why", "failing", "-o", "json")
    answer: dict[str, Any] = json.loads(output)
    return answer


def paste(home: Path, code: Path, advice: str) -> None:
    """Run the commands of the advice; the last of them must lead to a run that succeeds, or to the end of one that hangs."""
    commands = [shlex.split(found) for found in re.findall(r"\bfairway ((?:submit|run|resume|stop)\b[^;,()`\n]*)", advice)]
    assert commands, f"nothing to paste in: {advice}"
    ended = in_folder(home, code, *commands[-1])
    assert ended.returncode == 0, ended.stderr
    if commands[-1][0] != "stop":
        status, output = call(home, "wait", "failing", timeout=120)
        assert status == 0, output


def in_folder(home: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder. The first call starts the daemon, with a short stall timeout."""
    env = {**environment(home), "FAIRWAY_STALL_AFTER": "3s"}
    return subprocess.run([FAIRWAY, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
