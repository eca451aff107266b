"""The processes of a task in a container: started together, ended together. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import IO

from fairway.runtime.pod.measuring import Printed
from fairway.runtime.pod.order import PodOrder, Start

_PRINTING = threading.Lock()
_PIPE = 1 << 20
_GATHER = 0.005
"""Seconds in which lines gather before they are passed on together; the pipe holds what comes meanwhile."""
_SET_PIPE_SIZE = 1031
"""`fcntl.F_SETPIPE_SZ`, which Python names since 3.10."""


class Process:
    """One of them."""

    def __init__(self, rank: int, handle: subprocess.Popen[bytes]) -> None:
        self.rank = rank
        self.handle = handle
        self.status: int | None = None


class Processes:
    """All of them. The container's first process inherits what they leave behind, and reaps it."""

    def __init__(self, order: PodOrder) -> None:
        self._order = order
        self._by_pid: dict[int, Process] = {}
        self._pumps: list[threading.Thread] = []
        self.culprit: Process | None = None
        """The first that failed."""
        self.of_others: Callable[[int, int], None] = _nobody
        """Told of the end of children that are none of these."""
        self.printed = Printed(order.pattern) if order.pattern or order.detects else None
        """Who reads what they print; None: nobody."""

    def start(self, environment: dict[str, str]) -> None:
        """Start all of them. Raises `OSError` when one cannot be; those before it run then."""
        alone = len(self._order.starts) == 1
        for rank, start in enumerate(self._order.starts):
            if not start.argv:
                continue
            pump = self._pump(rank, alone)
            handle = self._spawn(start, environment, pump)
            self._by_pid[handle.pid] = Process(rank, handle)

    def _pump(self, rank: int, alone: bool) -> Callable[[IO[bytes]], None] | None:
        """Who passes on what a process prints: nobody, where it is alone and nobody reads it."""
        heard = self.printed
        if alone:
            return None if heard is None else lambda source: _pass_on(source, heard)
        mark = f"[{self._order.task}.{rank}] ".encode() if rank else b""
        return lambda source: _pump(source, mark, rank, heard)

    def _spawn(
        self, start: Start, environment: dict[str, str], passing: Callable[[IO[bytes]], None] | None
    ) -> subprocess.Popen[bytes]:
        """One that is alone prints to the container's own output; what several print goes there line by line, marked."""
        piped = passing is not None
        handle = subprocess.Popen(
            start.argv,
            cwd=self._order.cwd,
            env=start.environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else None,
            stderr=subprocess.STDOUT if piped else None,
            start_new_session=True,
        )
        if handle.stdout is not None and passing is not None:
            pump = threading.Thread(target=passing, args=(handle.stdout,), daemon=True)
            pump.start()
            self._pumps.append(pump)
        return handle

    @property
    def left(self) -> list[Process]:
        """Those that run."""
        return [process for process in self._by_pid.values() if process.status is None]

    def reap(self) -> None:
        """Take the exit codes of all children that ended, ours and those we inherited."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            process = self._by_pid.get(pid)
            if process is None:
                self.of_others(pid, status)
                continue
            process.status = status
            if status != 0 and self.culprit is None:
                self.culprit = process

    def tell(self, number: int) -> None:
        """Send a signal to each that runs, and, to end for good, to all it has started."""
        for process in self.left:
            try:
                if number == signal.SIGKILL:
                    os.killpg(process.handle.pid, number)
                else:
                    os.kill(process.handle.pid, number)
            except ProcessLookupError:
                continue

    def drain(self) -> None:
        """Let everything that was printed reach the container's output."""
        for pump in self._pumps:
            pump.join(timeout=5.0)


def _pump(source: IO[bytes], mark: bytes, rank: int, heard: Printed | None) -> None:
    """Pass lines on, each whole and with the mark of its process in front."""
    for line in source:
        with _PRINTING:
            sys.stdout.buffer.write(mark + line)
            sys.stdout.buffer.flush()
        if heard is not None:
            heard.hear(rank, line)


def _pass_on(source: IO[bytes], heard: Printed) -> None:
    """Pass everything on as it comes, also lines that have no end yet."""
    handle = source.fileno()
    with contextlib.suppress(OSError):
        fcntl.fcntl(handle, _SET_PIPE_SIZE, _PIPE)
    while data := os.read(handle, _PIPE):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        heard.hear(0, data)
        if len(data) < _PIPE // 2:
            # A program that prints line by line would otherwise wake us for each.
            time.sleep(_GATHER)


def _nobody(_pid: int, _status: int) -> None:
    """What was left behind by a program is reaped, and that is all."""
