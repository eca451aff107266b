"""Watches supervisors: notices their end by a message from them and by the end of their process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from fairway.engines.local.supervision.process.process_identity import ProcessIdentity
from fairway.state.job import JobKey
from fairway.state.task import TaskKey, TaskReport

_LOOK_AGAIN = 0.05
"""Seconds until a task is checked again whose supervisor ended during the check."""


class SupervisorWatch:
    """Keeps the reports of running tasks while their supervisors live, so that reading them costs nothing."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._handles: dict[TaskKey, int] = {}
        self._running: dict[TaskKey, TaskReport] = {}
        self._poke: socket.socket | None = None

    def running(self, key: TaskKey) -> TaskReport | None:
        """Return the report of a task whose supervisor is watched and has not ended."""
        return self._running.get(key)

    def running_of(self, run: JobKey) -> list[TaskKey]:
        """Return the tasks of a run whose supervisors are watched, sorted."""
        return sorted(key for key in self._running if key.run == run)

    def watch(self, report: TaskReport, supervisor: ProcessIdentity) -> None:
        """Watch the supervisor for its end; until then the report holds."""
        loop = asyncio.get_running_loop()
        try:
            handle = os.pidfd_open(supervisor.pid)
        except ProcessLookupError:
            loop.call_later(_LOOK_AGAIN, self._wake)
            return
        except OSError:
            # The kernel does not support it: the supervisor sends a message, and the loop checks periodically.
            return
        if not supervisor.alive:
            os.close(handle)
            loop.call_later(_LOOK_AGAIN, self._wake)
            return
        self._handles[report.key] = handle
        self._running[report.key] = report
        loop.add_reader(handle, self._ended, report.key)

    def listen(self, path: Path) -> None:
        """Open the socket on which supervisors announce the end of a task. Without it their ends are noticed a moment later."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        poke = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Through the folder's descriptor, because the path may be too long for a socket address.
            poke.bind(f"/proc/self/fd/{handle}/{path.name}")
            path.chmod(0o600)
        except OSError:
            poke.close()
            return
        finally:
            os.close(handle)
        self._poke = poke
        asyncio.get_running_loop().add_reader(poke.fileno(), self._poked)

    def close(self) -> None:
        """Stop watching."""
        for key in list(self._handles):
            self._forget(key)
        if self._poke is not None:
            asyncio.get_running_loop().remove_reader(self._poke.fileno())
            self._poke.close()
            self._poke = None

    def _ended(self, key: TaskKey) -> None:
        self._forget(key)
        self._wake()

    def _poked(self) -> None:
        named = {str(key): key for key in self._handles}
        with contextlib.suppress(BlockingIOError):
            while self._poke is not None:
                key = named.get(self._poke.recv(4096).decode(errors="replace"))
                if key is not None:
                    self._forget(key)
        self._wake()

    def _forget(self, key: TaskKey) -> None:
        self._running.pop(key, None)
        handle = self._handles.pop(key, None)
        if handle is not None:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)
