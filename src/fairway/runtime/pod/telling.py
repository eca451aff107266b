"""What the operator is told while the task runs: new metrics and checkpoints. Standard library only, Python 3.9 and newer.

The program writes files, as everywhere; this reads them and sends what is new. Whatever cannot be sent is sent later:
the files keep it, and nothing in the program waits.
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

from fairway.runtime import contract
from fairway.runtime.pod import trust
from fairway.runtime.pod.measuring import Measuring, Point

EVERY = 1.0
"""Seconds between two looks."""
PATIENCE = 5.0
"""Seconds for an answer."""
MOST = 1000
"""Points a message."""
PATH = "/v1/told"
LONGEST_ANSWER = 2000
COMPLAINTS = 20
"""Refusals that are printed, at the most."""


class Telling:
    """Tells the operator. A thread of its own, so that a slow network holds nobody up."""

    def __init__(self, task: str, attempt: int, measuring: Measuring, checkpoints: str, endpoint: str, token: str) -> None:
        # Two pods may speak for one task; by this and by its number a message is known that comes a second time.
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
        """What was sent, and not answered: it is sent again as it was."""
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
        self._unsent += self._measuring.new_points()
        while True:
            self._message = self._message or self._next()
            if self._message is None:
                return True
            if not self._send(self._message):
                return False
            self._message = None

    def _next(self) -> dict[str, Any] | None:
        """A message of what is new; None when nothing is."""
        checkpoint = self._newest_checkpoint()
        if not self._unsent and checkpoint is None:
            return None
        now, self._unsent = self._unsent[:MOST], self._unsent[MOST:]
        if checkpoint is not None:
            self._told_checkpoint = str(checkpoint["name"])
        self._number += 1
        return {**self._head, "number": self._number, "points": now, "checkpoint": checkpoint}

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
            with trust.urlopen(request, PATIENCE) as answer:
                self._complain(answer.read(LONGEST_ANSWER))
                return True
        except urllib.error.HTTPError as error:
            # What the operator does not understand, it will not understand later either.
            if not 400 <= error.code < 500:
                return False
            self._complain(error.read(LONGEST_ANSWER))
            return True
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def _complain(self, answer: bytes) -> None:
        """Print what the operator did not take, once for each reason, so that the run's log has it."""
        words = answer.decode(errors="replace").strip()
        if words and words not in self._complained and len(self._complained) < COMPLAINTS:
            self._complained.add(words)
            sys.stderr.write(f"fairway: the operator left out what the task told: {words}\n")
