"""Processes of a cluster: each has a log and a record of its id on disk, and is ended by that id alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PATIENCE = 60.0


class StartError(Exception):
    """A component of the cluster did not start; the message ends with its log."""


def wait_for(what: str, is_so: Callable[[], object], patience: float = PATIENCE, because: Callable[[], str] = str) -> None:
    """Return as soon as the condition holds.

    Raises:
        StartError: it did not hold in time.
    """
    end = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > end:
            raise StartError(f"{what}: not after {patience:.0f} s. {because()}")
        time.sleep(0.05)


class Processes:
    """The processes of one folder. `processes.json` names them, so that another process can end them after a crash."""

    def __init__(self, folder: Path, *, outlive: bool = False) -> None:
        self.folder = folder
        self._outlive = outlive
        self._register = folder / "processes.json"
        self._ours: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, arguments: Sequence[str | Path], environment: dict[str, str] | None = None) -> int:
        """Start a program in a new session; its output goes to `NAME.log`. Returns its id.

        Unless the cluster is to outlive its parent, the kernel kills the process together with this one.
        """
        command = [str(argument) for argument in arguments]
        if not self._outlive:
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with open(self.log(name), "ab") as log:
            made = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=None if environment is None else {**os.environ, **environment},
            )
        self._ours[name] = made
        self._write({**self._read(), name: [made.pid, birth(made.pid)]})
        return made.pid

    def log(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.folder / f"{name}.log"

    def pid(self, name: str) -> int:
        """Return the id of a process that was started."""
        return self._read()[name][0]

    def names(self) -> list[str]:
        """Return the names of the processes that were started and not ended, the newest first."""
        return list(reversed(self._read()))

    def alive(self, name: str) -> bool:
        """Whether the process still runs."""
        known = self._read().get(name)
        if known is None:
            return False
        made = self._ours.get(name)
        return (made is None or made.poll() is None) and birth(known[0]) == known[1]

    def wait_for(self, name: str, what: str, is_so: Callable[[], object], patience: float = PATIENCE) -> None:
        """Return as soon as the condition holds.

        Raises:
            StartError: the process ended, or it took too long.
        """

        def so_or_dead() -> bool:
            if not self.alive(name):
                raise StartError(f"{what}: {name} ended. {self._tail(name)}")
            return bool(is_so())

        wait_for(what, so_or_dead, patience, lambda: self._tail(name))

    def end(self, name: str, number: int = signal.SIGKILL) -> None:
        """End one process by its id, and wait until it has ended.

        It sends SIGKILL: an API server takes up to a minute to stop gracefully, and no state here is worth keeping.
        """
        if self.alive(name):
            pid = self.pid(name)
            os.kill(pid, number)
            wait_for(f"the end of {name}", lambda: not self.alive(name))
        if name in self._ours:
            self._ours.pop(name).wait()
        register = self._read()
        register.pop(name, None)
        self._write(register)

    def end_all(self) -> None:
        """End all processes, the newest first."""
        for name in self.names():
            self.end(name)

    def _tail(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()
        return f"The end of {self.log(name)}:\n" + "\n".join(lines[-15:])

    def _read(self) -> dict[str, list[int]]:
        try:
            return json.loads(self._register.read_text())
        except FileNotFoundError:
            return {}

    def _write(self, register: dict[str, list[int]]) -> None:
        draft = self._register.with_suffix(".draft")
        draft.write_text(json.dumps(register))
        draft.replace(self._register)


def command_line(process: Path) -> bytes:
    """Return the command line of a process (`/proc/PID`); empty when it has ended, also while it is read."""
    try:
        return (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def birth(pid: int) -> int:
    """Return the start time of a process in ticks since boot, which tells a reused id apart. 0 when no such process runs."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if words[0] == "Z" else int(words[19])
