"""What the operator is told while the task runs: new metrics and checkpoints. Standard library only, Python 3.9 and newer.

The program writes files, as everywhere; this reads them and sends what is new. Whatever cannot be sent is sent later:
the files keep it, and nothing in the program waits.
"""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from typing import Any

from fairway.runtime import contract, metrics

EVERY = 1.0
"""Seconds between two looks."""
PATIENCE = 5.0
"""Seconds for an answer."""
MOST = 1000
"""Points a message."""
PATH = "/v1/told"


class Growing:
    """A file of reports, read as far as it has whole lines."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0

    def new_points(self) -> list[dict[str, Any]]:
        """What was reported since the last look."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read(1 << 20)
        except FileNotFoundError:
            return []
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        parsed = [metrics.parse(line) for line in data[:whole].splitlines()]
        return [{"time": time, "step": step, "metrics": numbers} for time, step, numbers in (one for one in parsed if one)]


class Telling:
    """Tells the operator. A thread of its own, so that a slow network holds nobody up."""

    def __init__(self, task: str, attempt: int, folder: str, checkpoints: str, ranks: int, endpoint: str, token: str) -> None:
        self._head = {"task": task, "attempt": attempt}
        self._files = [Growing(os.path.join(folder, contract.METRICS_FILE.format(local_rank=rank))) for rank in range(ranks)]
        self._checkpoints = checkpoints
        self._told_checkpoint = ""
        self._endpoint = endpoint
        self._token = token
        self._unsent: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """Send what is left, and end. An operator that cannot be reached costs a few seconds, not the run."""
        self._ended.set()
        self._thread.join(timeout=3 * PATIENCE)

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            self.tell()
        self.tell()

    def tell(self) -> bool:
        """Send what is new; False when it could not be sent, and is kept."""
        for file in self._files:
            self._unsent += file.new_points()
        checkpoint = self._newest_checkpoint()
        if not self._unsent and checkpoint is None:
            return True
        now, later = self._unsent[:MOST], self._unsent[MOST:]
        if not self._send({**self._head, "points": now, "checkpoint": checkpoint}):
            return False
        self._unsent = later
        if checkpoint is not None:
            self._told_checkpoint = str(checkpoint["name"])
        return True

    def _newest_checkpoint(self) -> dict[str, Any] | None:
        if not self._checkpoints:
            return None
        try:
            with open(os.path.join(self._checkpoints, contract.LATEST), encoding="utf-8") as file:
                name = file.read().strip()
            if not name or name == self._told_checkpoint:
                return None
            made = os.stat(os.path.join(self._checkpoints, name, contract.MANIFEST)).st_mtime
            return {"name": name, "step": int(name.rpartition("-")[2]), "time": made}
        except (OSError, ValueError):
            return None

    def _send(self, message: dict[str, Any]) -> bool:
        request = urllib.request.Request(
            self._endpoint + PATH,
            json.dumps(message).encode(),
            {"Content-Type": "application/json", "Authorization": "Bearer " + self._token},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE):
                return True
        except urllib.error.HTTPError as error:
            # What the operator does not understand, it will not understand later either.
            return 400 <= error.code < 500
        except (OSError, ValueError):
            return False
