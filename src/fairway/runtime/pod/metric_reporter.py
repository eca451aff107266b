"""Report new metrics and checkpoints to the operator while the task runs. Standard library only, Python 3.9 and newer.

The program writes files, as everywhere; this thread reads them and sends new data. Data that cannot be sent is sent later: the
files keep it, and the program never waits.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

from fairway.runtime import task_contract
from fairway.runtime.pod import operator_tls
from fairway.runtime.pod.metric_collector import MetricCollector, Point

EVERY = 1.0
"""Interval in seconds between reports."""
PATIENCE = 5.0
"""Timeout of a request, in seconds."""
MOST = 1000
"""Maximum number of points per message."""
PATH = "/v1/told"
LONGEST_ANSWER = 2000
COMPLAINTS = 20
"""Maximum number of rejections that are printed."""


class MetricReporter:
    """Sends reports to the operator, in a thread of its own, so that a slow network delays nothing."""

    def __init__(self, task: str, attempt: int, measuring: MetricCollector, checkpoints: str, endpoint: str, token: str) -> None:
        # Two pods may report for one task. The sender and the number identify a message that arrives twice.
        self._head = {"task": task, "attempt": attempt, "sender": os.urandom(8).hex()}
        self._number = 0
        self._measuring = measuring
        self._checkpoints = checkpoints
        self._told_checkpoint = ""
        self._endpoint = endpoint
        self._token = token
        self._unsent: list[Point] = []
        self._complained: set[str] = set()
        self._message: dict[str, Any] | None = None
        """The message that was sent but not confirmed; it is sent again unchanged."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self) -> None:
        """Send the remaining data and stop. An operator that cannot be reached costs a few seconds, not the run."""
        self._ended.set()
        self._thread.join(timeout=3 * PATIENCE)

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            self.tell()
        self.tell()

    def tell(self) -> bool:
        """Send new data; return False if it could not be sent, in which case it is kept."""
        self._unsent += self._measuring.new_points()
        while True:
            self._message = self._message or self._next()
            if self._message is None:
                return True
            if not self._send(self._message):
                return False
            self._message = None

    def _next(self) -> dict[str, Any] | None:
        """Return a message with the new data; None if there is none."""
        checkpoint = self._newest_checkpoint()
        if not self._unsent and checkpoint is None:
            return None
        batch, self._unsent = self._unsent[:MOST], self._unsent[MOST:]
        if checkpoint is not None:
            self._told_checkpoint = str(checkpoint["name"])
        self._number += 1
        return {**self._head, "number": self._number, "points": batch, "checkpoint": checkpoint}

    def _newest_checkpoint(self) -> dict[str, Any] | None:
        if not self._checkpoints:
            return None
        try:
            with open(os.path.join(self._checkpoints, task_contract.LATEST), encoding="utf-8") as file:
                name = file.read().strip()
            if not name or name == self._told_checkpoint:
                return None
            modified = os.stat(os.path.join(self._checkpoints, name, task_contract.MANIFEST)).st_mtime
            return {"name": name, "step": int(name.rpartition("-")[2]), "time": modified}
        except (OSError, ValueError):
            return None

    def _send(self, message: dict[str, Any]) -> bool:
        request = urllib.request.Request(
            self._endpoint + PATH,
            json.dumps(message).encode(),
            {"Content-Type": "application/json", "Authorization": "Bearer " + self._token},
        )
        try:
            with operator_tls.urlopen(request, PATIENCE) as answer:
                self._complain(answer.read(LONGEST_ANSWER))
                return True
        except urllib.error.HTTPError as error:
            # A message that the operator cannot process now will not be processed later either.
            if not 400 <= error.code < 500:
                return False
            self._complain(error.read(LONGEST_ANSWER))
            return True
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def _complain(self, answer: bytes) -> None:
        """Print what the operator rejected, once for each reason, so that the run's log contains it."""
        reasons = answer.decode(errors="replace").strip()
        if reasons and reasons not in self._complained and len(self._complained) < COMPLAINTS:
            self._complained.add(reasons)
            sys.stderr.write(f"fairway: the operator rejected reports of the task: {reasons}\n")
