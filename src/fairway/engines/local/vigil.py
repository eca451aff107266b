"""Watches over supervisors: hears of their ends, by what they say and by the end of their process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from fairway.engines.local.supervision.identity import Identity
from fairway.state.job import JobKey
from fairway.state.task import TaskKey, TaskReport

_LOOK_AGAIN = 0.05
"""Seconds until a task is looked at again whose supervisor ended while it was looked at."""


class Vigil:
    """Remembers what runs for as long as its supervisor does, so that looking again costs nothing."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._handles: dict[TaskKey, int] = {}
        self._running: dict[TaskKey, TaskReport] = {}
        self._poke: socket.socket | None = None

    def running(self, key: TaskKey) -> TaskReport | None:
        """What is known of a task whose supervisor is watched and has not ended."""
        return self._running.get(key)

    def running_of(self, run: JobKey) -> list[TaskKey]:
        """The tasks of a run whose supervisors are watched, in order."""
        return sorted(key for key in self._running if key.run == run)

    def watch(self, report: TaskReport, supervisor: Identity) -> None:
        """Hear of the supervisor's end, however it comes; until then the report holds."""
        loop = asyncio.get_running_loop()
        try:
            handle = os.pidfd_open(supervisor.pid)
        except ProcessLookupError:
            loop.call_later(_LOOK_AGAIN, self._wake)
            return
        except OSError:
            # A kernel that cannot: the supervisor will tell, and the loop looks now and then.
            return
        if not supervisor.alive:
            os.close(handle)
            loop.call_later(_LOOK_AGAIN, self._wake)
            return
        self._handles[report.key] = handle
        self._running[report.key] = report
        loop.add_reader(handle, self._ended, report.key)

    def listen(self, path: Path) -> None:
        """Where supervisors tell that a task is over. Without it their ends are still seen, a moment later."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        poke = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # By way of the folder's handle, because the path may be too long for a socket's address.
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
        """Watch nobody any more."""
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
