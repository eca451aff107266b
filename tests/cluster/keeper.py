"""Restarts a process of Fairway whenever it ends, as a Deployment does; each start gets the next place at which it crashes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence

from cluster.installed import Installed


class Keeper:
    """`with Keeper(installed, "operator", places) as keeper:` keeps a process alive until it has crashed at all places."""

    def __init__(self, installed: Installed, name: str, places: Sequence[str] = (), **more: str) -> None:
        self.name = name
        self.left = list(places)
        """The places at which it has not crashed yet."""
        self.ended: list[int] = []
        """The exit codes of ends that were not at one of the places."""
        self._installed = installed
        self._more = more
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._keep)

    def __enter__(self) -> Keeper:
        self._start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()
        process = self._installed.processes.pop(self.name)
        process.terminate()
        process.wait(timeout=60)

    def _start(self) -> None:
        armed = {"FAIRWAY_CRASH_AT": self.left[0]} if self.left else {}
        self._process = self._installed.start(self.name, **armed, **self._more)

    def _keep(self) -> None:
        while not self._enough.wait(0.05):
            code = self._process.poll()
            if code is None:
                continue
            if self.left and code == -signal.SIGKILL:
                self.left.pop(0)
            else:
                self.ended.append(code)
            self._installed.end_lease(self.name)
            self._start()
        self._installed.plane.hang_up()
