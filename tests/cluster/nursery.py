"""Starts Fairway's processes quickly: one process has imported everything and forks; the child continues as the program would.

A test that kills and starts them dozens of times would otherwise spend its time on imports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PROGRAMS = {
    "operator": "fairway.bootstrap.operator",
    "scheduler": "fairway.engines.kubernetes.scheduler.__main__",
    "agent": "fairway.engines.kubernetes.agent.__main__",
}
"""The module whose `main` each process runs, by process."""


class Forked:
    """One forked process, with the interface of `subprocess.Popen` as far as tests need it."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        if self.returncode is None:
            self.returncode = self._nursery.ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends."""
        end = time.monotonic() + (timeout or 3600.0)
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"process {self.pid} has not ended")
            time.sleep(0.02)
        return code

    def send(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.send(signal.SIGKILL)

    def terminate(self) -> None:
        """Terminate it with SIGTERM."""
        self.send(signal.SIGTERM)


class Nursery:
    """Forks processes; ends all of them when it is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cluster.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def start(self, program: str, environment: dict[str, str], log: Path) -> Forked:
        """Start a process; its output is appended to `log`."""
        return Forked(self, self.ask(start=program, environment=environment, log=str(log)))

    def ask(self, **order: Any) -> Any:
        """Send an order and return the response."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End all processes that run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


def _serve() -> None:
    mains = {name: __import__(module, fromlist=["main"]).main for name, module in PROGRAMS.items()}
    children: dict[int, int | None] = {}
    answer: int | None
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            pid = os.fork()
            if not pid:
                _become(mains[order["start"]], order)
            children[pid] = None
            answer = pid
        else:
            answer = children[order["poll"]]
            if answer is None:
                pid, status = os.waitpid(order["poll"], os.WNOHANG)
                answer = children[order["poll"]] = os.waitstatus_to_exitcode(status) if pid else None
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid, code in children.items():
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _become(main: Any, order: dict[str, Any]) -> None:
    """Become the program; never returns."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ.update(order["environment"])
        _set_clock(float(os.environ.pop("CLOCK_IS_WRONG_BY", "0")))
        code = main()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _set_clock(wrong_by: float) -> None:
    """Shift this process's wall clock by so many seconds."""
    right = time.time
    if wrong_by:
        time.time = lambda: right() + wrong_by


if __name__ == "__main__":
    _serve()
