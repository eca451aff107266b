"""The processes of a task in a container: started together, stopped together. Standard library only, Python 3.9 and newer."""

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

from fairway.runtime.pod.metric_collector import OutputMetrics
from fairway.runtime.pod.pod_order import PodOrder, ProcessStart

_PRINTING = threading.Lock()
_PIPE = 1 << 20
_GATHER = 0.005
"""Seconds for which output is collected before it is forwarded; the pipe buffers what arrives meanwhile."""
_SET_PIPE_SIZE = 1031
"""`fcntl.F_SETPIPE_SZ`, which Python has since 3.10."""


class PodProcess:
    """One process of a task."""

    def __init__(self, rank: int, handle: subprocess.Popen[bytes]) -> None:
        self.rank = rank
        self.handle = handle
        self.status: int | None = None


class PodProcesses:
    """All processes of a task. The container's first process inherits the orphans that they leave, and reaps them."""

    def __init__(self, order: PodOrder) -> None:
        self._order = order
        self._by_pid: dict[int, PodProcess] = {}
        self._pumps: list[threading.Thread] = []
        self.culprit: PodProcess | None = None
        """The first process that failed."""
        self.of_others: Callable[[int, int], None] = _nobody
        """Called with the pid and status of ended children that are not processes of the task."""
        self.printed = OutputMetrics(order.pattern) if order.pattern or order.detects else None
        """Reader of metrics in the output; None: the output is not read."""

    def start(self, environment: dict[str, str]) -> None:
        """Start all processes. Raises `OSError` if one cannot be started; those before it are running then."""
        alone = len(self._order.starts) == 1
        for rank, start in enumerate(self._order.starts):
            if not start.argv:
                continue
            pump = self._pump(rank, alone)
            handle = self._spawn(start, environment, pump)
            self._by_pid[handle.pid] = PodProcess(rank, handle)

    def _pump(self, rank: int, alone: bool) -> Callable[[IO[bytes]], None] | None:
        """Return the function that forwards a process's output; None if it is the only process and its output is not read."""
        reader = self.printed
        if alone:
            return None if reader is None else lambda source: _pass_on(source, reader)
        mark = f"[{self._order.task}.{rank}] ".encode() if rank else b""
        return lambda source: _pump(source, mark, rank, reader)

    def _spawn(
        self, start: ProcessStart, environment: dict[str, str], passing: Callable[[IO[bytes]], None] | None
    ) -> subprocess.Popen[bytes]:
        """Start a process.

        A single one writes to the container's own output; the output of several is forwarded line by line, with a mark.
        """
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
    def left(self) -> list[PodProcess]:
        """The processes that are running."""
        return [process for process in self._by_pid.values() if process.status is None]

    def reap(self) -> None:
        """Reap all children that ended, those of the task and inherited ones."""
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
        """Send a signal to each running process; SIGKILL is sent to its whole process group."""
        for process in self.left:
            try:
                if number == signal.SIGKILL:
                    os.killpg(process.handle.pid, number)
                else:
                    os.kill(process.handle.pid, number)
            except ProcessLookupError:
                continue

    def drain(self) -> None:
        """Wait until all output has reached the container's output."""
        for pump in self._pumps:
            pump.join(timeout=5.0)


def _pump(source: IO[bytes], mark: bytes, rank: int, heard: OutputMetrics | None) -> None:
    """Forward complete lines, each with the mark of its process in front."""
    for line in source:
        with _PRINTING:
            sys.stdout.buffer.write(mark + line)
            sys.stdout.buffer.flush()
        if heard is not None:
            heard.hear(rank, line)


def _pass_on(source: IO[bytes], heard: OutputMetrics) -> None:
    """Forward all output as it arrives, including unfinished lines."""
    handle = source.fileno()
    with contextlib.suppress(OSError):
        fcntl.fcntl(handle, _SET_PIPE_SIZE, _PIPE)
    while data := os.read(handle, _PIPE):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        heard.hear(0, data)
        if len(data) < _PIPE // 2:
            # A program that prints line by line would otherwise wake this thread for each line.
            time.sleep(_GATHER)


def _nobody(_pid: int, _status: int) -> None:
    """Ignore the end of an orphan: it only has to be reaped."""
