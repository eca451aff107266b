"""A home with a real daemon for one test: started by the command line, killed at any point, and removed completely at the end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

FAIRWAY = str(Path(sys.executable).with_name("fairway"))
PATIENCE = 30.0
"""Timeout in seconds; everything takes a fraction of a second on an idle machine."""
GPUS = "2xA100"
UNAVAILABLE = 4
"""The exit code of a command whose daemon cannot be reached."""

PROGRAM = """
import os, sys, time
job, task, attempt = (os.environ["FAIRWAY_" + name] for name in ("JOB", "TASK", "ATTEMPT"))
marks = os.environ["MARKS"]
with open(f"{marks}/started", "a") as file:
    file.write(f"{job}/{task}#{attempt} {os.getpid()}\\n")
while not os.path.exists(f"{marks}/go-{job}"):
    time.sleep(0.01)
word = open(f"{marks}/go-{job}").read()
if word == "die":
    os.kill(os.getpid(), 9)
sys.exit(int(word))
"""
"""Records that it was started, waits for an order to end, and ends that way."""

Value = TypeVar("Value")
_FLOCK = struct.Struct("hhqqi4x")


class DaemonHome:
    """One home, its working folder, and its processes."""

    persistence = PATIENCE
    """Seconds for which a command is repeated while the daemon dies under it."""

    def __init__(
        self, folder: Path, name: str = "home", environment: Mapping[str, str] | None = None, disk: Path | None = None
    ) -> None:
        self.path = (disk or folder) / name
        self.machine = folder / "machine"
        self.work = folder / f"work-{name}"
        self.marks = folder / f"marks-{name}"
        for each in (self.work, self.marks):
            each.mkdir()
        # Short, because the path of a Unix socket is limited to 107 bytes.
        self.runtime = Path(tempfile.mkdtemp(prefix="fairway-test-"))
        self.daemon: subprocess.Popen[bytes] | None = None
        self.unanswered = 0
        """Requests that a dying daemon left unanswered."""
        foreign = ("FAIRWAY_", "XDG_", "TF_CONFIG", "JAX_", "DMLC_", "OMPI_", "PMIX_")
        own = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        self.environment = {
            **own,
            "FAIRWAY_HOME": str(self.path),
            "FAIRWAY_MACHINE_DIR": str(self.machine),
            "FAIRWAY_FAKE_GPUS": GPUS,
            "FAIRWAY_CPUS": "16",
            "XDG_RUNTIME_DIR": str(self.runtime),
            "NO_COLOR": "1",
            **(environment or {}),
        }
        (self.work / "program.py").write_text(PROGRAM)

    # The command line

    def call(self, *words: str, say: str = "", more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command line in the working folder; any exit code is accepted."""
        return subprocess.run(
            [FAIRWAY, *words],
            cwd=self.work,
            env={**self.environment, **(more or {})},
            input=say,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def call_once(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as a client that does not retry when a response is lost, like one that is killed then."""
        program = "import sys; from fairway.sdk.transport import retry; retry.may_ask_again = lambda *_: False\n"
        program += "from fairway.cli.main import main; sys.exit(main(sys.argv[1:]))"
        return subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def ask(self, *words: str, say: str = "", more: Mapping[str, str] | None = None) -> str:
        """Run the command line; it must succeed. Return its output as data."""
        ended = self.call(*words, say=say, more=more)
        assert ended.returncode == 0, (
            f"fairway {' '.join(words)} ended with {ended.returncode}\n{ended.stdout}{ended.stderr}{self.log}"
        )
        return ended.stdout.strip()

    def persist(self, *words: str, say: str = "", well: Container[int] = (0,)) -> str:
        """Run the command line, again if the daemon dies under it, until it ends with one of these codes; return its output."""
        deadline = time.monotonic() + self.persistence
        while (ended := self.call(*words, say=say)).returncode == UNAVAILABLE:
            self.unanswered += 1
            assert time.monotonic() < deadline, f"nobody answers {words}\n{ended.stderr}"
        assert ended.returncode in well, f"fairway {' '.join(words)} ended with {ended.returncode}\n{ended.stderr}\n{self.log}"
        return ended.stdout.strip()

    def get(self, name: str) -> dict[str, Any]:
        """Return a run as the command line shows it."""
        found: dict[str, Any] = json.loads(self.persist("get", name, "-o", "json"))
        return found

    def names(self) -> list[str]:
        """Return the names of all runs."""
        return self.persist("list", "-o", "name").split()

    def submit(self, document: Mapping[str, Any], *flags: str) -> str:
        """Submit a document; return the name of the run."""
        return self.ask("submit", self.write(document), *flags)

    def write(self, document: Mapping[str, Any]) -> str:
        """Write a document into the working folder; return its path."""
        path = self.work / f"{document['name']}.yaml"
        path.write_text(yaml.safe_dump(dict(document)))
        return str(path)

    def document(self, name: str = "gang", workers: int = 2, *command: str, **more: Any) -> dict[str, Any]:
        """Return the document of a gang of programs that wait for an order to end."""
        given = {"replicas": workers, "command": list(command) or [sys.executable, "-I", "-S", str(self.work / "program.py")]}
        return {
            "kind": "TrainingJob",
            "name": name,
            "env": {"MARKS": str(self.marks)},
            "grace": "1s",
            "restart": {"max": 0},
            **{key: value for key, value in more.items() if key != "role"},
            "roles": {"worker": {**given, **more.get("role", {})}},
        }

    # Waiting

    def until(self, look: Callable[[], Value], what: str = "it", within: float = PATIENCE) -> Value:
        """Poll until something is found and return it; fail on timeout."""
        deadline = time.monotonic() + within
        while not (found := look()):
            assert time.monotonic() < deadline, f"{what} did not happen in time\n{self.log}"
            time.sleep(0.02)
        return found

    def until_phase(self, name: str, *phases: str) -> dict[str, Any]:
        """Return the run, once it is in one of the phases; fail at once when it ends otherwise."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.get(name))["phase"] not in phases:
            lost = found["phase"] in ("Succeeded", "Failed", "Stopped") or time.monotonic() > deadline
            told = json.dumps({key: found[key] for key in ("phase", "outcome", "hold", "tasks", "earlier")}, indent=1)
            assert not lost, f"{name} is not {' or '.join(phases)}\n{told}\n{self.log}"
            time.sleep(0.02)
        return found

    def until_started(self, *tasks: str) -> dict[str, int]:
        """Return the process ids of these attempts (`gang-1/worker-0#0`), once their programs have started."""
        return self.until(lambda: (known := self.started()).keys() >= set(tasks) and known, f"the start of {', '.join(tasks)}")

    # The programs

    def started(self) -> dict[str, int]:
        """Return the attempts whose programs have started, with their process ids. No program may have started twice."""
        lines = [line.split() for line in self._started_lines()]
        twice = [name for name, count in Counter(name for name, _ in lines).items() if count > 1]
        assert not twice, f"started twice: {twice}"
        return {name: int(pid) for name, pid in lines}

    def tell(self, run: str, word: str = "0") -> None:
        """Let the programs of a run end with this code, or `die`."""
        aside = self.marks / f".{run}"
        aside.write_text(word)
        aside.rename(self.marks / f"go-{run}")

    def _started_lines(self) -> list[str]:
        path = self.marks / "started"
        return path.read_text().splitlines() if path.exists() else []

    # The daemon

    @property
    def log(self) -> str:
        """Return the end of the daemon's log."""
        path = self.path / "daemon.log"
        return "\n".join(path.read_text().splitlines()[-60:]) if path.exists() else ""

    def start_daemon(self, **environment: str) -> int:
        """Start the daemon through the command line; return its process id."""
        status = json.loads(self.ask("daemon", "start", "-o", "json", more=environment))
        return int(status["pid"])

    def start_child(self, **environment: str) -> subprocess.Popen[bytes]:
        """Start the daemon as a child of the test, so that the test gets its exit status."""
        with (self.runtime / "child.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "fairway.bootstrap", "serve"],
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        return self.daemon

    def status(self) -> dict[str, Any]:
        """Return the daemon's status, without starting it."""
        found: dict[str, Any] = json.loads(self.call("daemon", "status", "-o", "json").stdout)
        return found

    def kill_daemon(self) -> int:
        """Kill the daemon with SIGKILL; return its process id."""
        pid = int(self.status()["pid"])
        kill(pid)
        return pid

    # The tasks

    def attempt(self, task: str) -> Path:
        """Return the folder of `gang-1/worker-0#0`."""
        run, _, rest = task.partition("/")
        return self.path / "jobs" / "default" / run / "attempts" / rest.replace("#", "-")

    def supervisor(self, task: str) -> int:
        """Return the process id of an attempt's supervisor."""
        return int(self.begun(task)["supervisor"]["pid"])

    def begun(self, task: str) -> dict[str, Any]:
        """Return the record of an attempt's start, once it exists."""
        path = self.attempt(task) / "started.json"
        found: dict[str, Any] = json.loads(self.until(lambda: path.exists() and path.read_bytes(), f"the start of {task}"))
        return found

    def processes(self) -> dict[int, str]:
        """Return the running processes of this home: daemon, fork server, supervisors and tasks, with their command lines."""
        mark = os.fsencode(f"={self.path}")
        found = {pid: text for pid, text, variables in _processes() if any(mark in each for each in variables)}
        parents = {pid: _parent(pid) for pid, _, _ in _processes()}
        for path in self.path.glob("jobs/*/*/attempts/*/started.json"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                known = json.loads(path.read_bytes())["supervisor"]
                if is_alive(known["pid"]) and _start(known["pid"]) == known["start"]:
                    found[known["pid"]] = f"supervisor of {path.parent.name}"
        for pid, text, _ in _processes():
            if pid not in found and parents.get(pid) in found:
                found[pid] = text
        return found

    def check_nothing_held(self) -> None:
        """Assert that no process runs, that no device, port or attempt is locked, and that no unfinished deletion remains."""
        # A supervisor releases its locks shortly after it has recorded the end; this waits for that.
        self.until(lambda: not self._tasks(), f"the end of {self._tasks()}")
        self.until(lambda: not self.held(), f"letting go of {self.held()}")
        assert list(self.path.glob("trash/*")) == []

    def unknown_folders(self) -> set[str]:
        """Return the folders of runs that are not in the list."""
        return {path.name for path in self.path.glob("jobs/default/*")} - set(self.names())

    def held(self) -> list[str]:
        """Return the locks of attempts, devices and ports that a process holds."""
        paths = [*self.machine.parent.glob(f"{self.machine.name}*/*"), *self.path.glob("jobs/*/*/attempts/*/lock")]
        return [str(path) for path in paths if _is_locked(path)]

    def _tasks(self) -> dict[int, str]:
        return {
            pid: text for pid, text in self.processes().items() if "fairway.bootstrap" not in text and "fork_server" not in text
        }

    def close(self) -> None:
        """End all processes of this home."""
        for _ in range(200):
            left = self.processes()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.daemon is not None:
                self.daemon.poll()
            if not left:
                break
            time.sleep(0.01)
        if self.daemon is not None:
            self.daemon.wait(PATIENCE)
        shutil.rmtree(self.runtime, ignore_errors=True)


def kill(pid: int) -> None:
    """Send SIGKILL, and wait until the process has ended."""
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        ready, _, _ = select.select([handle], [], [], PATIENCE)
        assert ready, f"{pid} outlived SIGKILL"
    finally:
        os.close(handle)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def _processes() -> list[tuple[int, str, list[bytes]]]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and is_alive(int(name)) and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append((int(name), text, Path(f"/proc/{name}/environ").read_bytes().split(b"\0")))
    return found


def _parent(pid: int) -> int:
    return _stat(pid, 1)


def _start(pid: int) -> int:
    return _stat(pid, 19)


def _stat(pid: int, field: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field])
    except (OSError, IndexError):
        return -1


def _is_locked(path: Path) -> bool:
    """Whether any process holds a lock on any byte of the file."""
    try:
        with path.open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
