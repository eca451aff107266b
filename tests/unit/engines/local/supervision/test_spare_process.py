"""A program started in a spare interpreter behaves as one started normally."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fairway.runtime.spare
from fairway.engines.local.supervision.order import TaskCommand, TaskOrder
from fairway.engines.local.supervision.process.process_start import StandardStreams
from fairway.engines.local.supervision.spare_process import PROBE, PROVEN, VARIABLE, SpareProcess
from fairway.runtime.spare import sitecustomize

HOOK = str(Path(fairway.runtime.spare.__file__).parent)
SHOW = """
import inspect, json, os, sys
import torch
main = sys.modules["__main__"]
told = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "cwd": os.getcwd(),
    "main": [main.__file__, main.__name__, main.__spec__, main.__package__, type(main.__loader__).__name__],
    "names": sorted(vars(main)), "environ": dict(os.environ), "frames": len(inspect.stack()), "umask": os.umask(0),
    "custom": "sitecustomize" in sys.modules, "executable": sys.executable, "comm": open("/proc/self/comm").read(),
    "session": os.getsid(0) == os.getpid(), "tty": os.isatty(1),
    "stdin": sys.stdin.read(), "mask": [int(s) for s in __import__("signal").pthread_sigmask(0, [])],
}
for name in os.listdir("/proc/self/fd"):
    try:
        assert "socket" not in os.readlink("/proc/self/fd/" + name)
    except FileNotFoundError:
        pass
print(json.dumps(told))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a program, and a framework that records when it is imported."""
    framework = tmp_path / "site" / "torch"
    framework.mkdir(parents=True)
    (framework / "__init__.py").write_text("import os\nos.environ.pop('IMPORTED', None)\nfrozen = os.environ.get('KNOB')\n")
    (tmp_path / "work").mkdir()
    return tmp_path


class Stage:
    """Runs a program twice: normally, and in a spare interpreter."""

    def __init__(self, place: Path, program: str, modules: tuple[str, ...] = ("torch",)) -> None:
        self.work = place / "work"
        (self.work / "show.py").write_text(program)
        self.argv = [sys.executable, "show.py", "--lr", "1"]
        self.env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(place / "site"), "PYTHONUNBUFFERED": "1", "NUMBER": "1"}
        told = json.dumps({"modules": modules, "folder": str(self.work)})
        waiting = {**self.env, "PYTHONPATH": f"{HOOK}:{self.env['PYTHONPATH']}", VARIABLE: told, "NUMBER": "0"}
        self.request = TaskOrder(task="t", folder="/", cwd=str(self.work), env={}, commands=[TaskCommand(self.argv, waiting)])

    def ever(self) -> tuple[int, str]:
        ended = subprocess.run(
            self.argv, cwd=self.work, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, umask=0o022, check=False, text=True,
        )  # fmt: skip
        return ended.returncode, ended.stdout

    def waited(self) -> tuple[int, str]:
        spare = warm(SpareProcess(self.request))
        output = os.open(self.work.parent / "out", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        assert spare.become(self.env, str(self.work), StandardStreams(nothing, output))
        _, status = os.waitpid(spare.pid, 0)
        os.close(output)
        os.close(nothing)
        return os.waitstatus_to_exitcode(status), (self.work.parent / "out").read_text()


def warm(spare: SpareProcess) -> SpareProcess:
    waiting = select.poll()
    waiting.register(spare.fileno(), select.POLLIN)
    assert waiting.poll(30_000)
    assert spare.listen()
    return spare


@pytest.fixture
def stage(place: Path) -> Stage:
    return Stage(place, SHOW)


def test_both_sides_use_the_same_words() -> None:
    assert (VARIABLE, PROBE, PROVEN) == (sitecustomize.VARIABLE, sitecustomize.PROBE, sitecustomize.PROVEN)


def test_a_program_sees_what_it_would_have_seen(stage: Stage) -> None:
    code, text = stage.waited()
    assert code == 0, text
    data = json.loads(text)
    assert data == json.loads(stage.ever()[1])
    assert data["environ"]["NUMBER"] == "1"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("def f():\n    raise ValueError('x')\nf()", 1),
        ("import sys\nsys.exit('words')", 1),
        ("this is no Python", 1),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os\nos.abort()", -signal.SIGABRT),
    ],
)
def test_it_ends_as_it_would_have_ended(place: Path, program: str, code: int) -> None:
    stage = Stage(place, program)
    waited = stage.waited()
    assert waited[0] == code
    assert waited == stage.ever()


def test_a_sitecustomize_of_the_users_is_loaded_and_stays(place: Path) -> None:
    (place / "site" / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 1\n")
    stage = Stage(place, "import sys\nprint(mine, sys.modules['sitecustomize'].__file__)")
    assert stage.waited() == stage.ever()


def test_while_it_waits_it_says_so_and_uses_nothing(stage: Stage) -> None:
    spare = warm(SpareProcess(stage.request))
    place = Path("/proc", str(spare.pid))
    assert (place / "comm").read_text() == "fairway-spare\n"
    deadline = time.monotonic() + 30
    while (place / "stat").read_text().split()[2] != "S":
        assert time.monotonic() < deadline
        time.sleep(0.001)
    before = (place / "stat").read_text().split()[13:15]
    assert [os.readlink(place / "fd" / name) for name in "012"] == ["/dev/null"] * 3
    assert (place / "stat").read_text().split()[13:15] == before
    spare.end()
    assert not place.exists()


@pytest.mark.parametrize(
    ("name", "modules"),
    [("json.py", ("torch",)), ("torch", ("torch",)), ("harmless.txt", ("no_such_module",))],
)
def test_a_spare_that_would_differ_gives_up(place: Path, name: str, modules: tuple[str, ...]) -> None:
    stage = Stage(place, SHOW, modules)
    (stage.work / name).write_text("")
    spare = SpareProcess(stage.request)
    waiting = select.poll()
    waiting.register(spare.fileno(), select.POLLIN)
    assert waiting.poll(30_000)
    assert not spare.listen()
    spare.end()


def test_one_that_is_not_ready_is_not_used(stage: Stage) -> None:
    (stage.work.parent / "site" / "torch" / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    spare = SpareProcess(stage.request)
    assert not spare.become(stage.env, str(stage.work), StandardStreams(0, 1))
    assert not Path("/proc", str(spare.pid)).exists()


def test_an_interpreter_that_would_not_wait_is_never_given_the_program(stage: Stage) -> None:
    stage.request.commands[0].env["PYTHONPATH"] = stage.env["PYTHONPATH"]
    with pytest.raises(OSError, match="does not load"):
        SpareProcess(stage.request)
    assert not (stage.work.parent / "out").exists()
