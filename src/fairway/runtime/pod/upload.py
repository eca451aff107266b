"""Upload data that must outlive a pod, if the pods of a run share no volume: checkpoints and outputs.

Each complete checkpoint is sent to the operator, and the next attempt starts with the newest. The operator accepts a checkpoint
completely or not at all. Outputs are sent when the task has succeeded. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Callable

from fairway.runtime import checkpoint_folder, task_contract
from fairway.runtime.pod import archive, fetch
from fairway.runtime.pod.http_upload import put

EVERY = 1.0
"""Interval in seconds between checks for a new checkpoint."""
LONGEST = 30.0
"""Maximum seconds between two retries."""
PATIENCE = 600.0
"""Seconds for which sending the last checkpoint and the outputs is retried after the task's end."""
CHECKPOINTS = "/v1/given/checkpoints/"
OUTPUTS = "/v1/given/outputs/"
NEWEST = "latest"
_FINISHED = task_contract.STEP_FOLDER.split("{", maxsplit=1)[0]


class OperatorUploads:
    """The operator that receives the uploads."""

    def __init__(self, endpoint: str, token: str, task: str = "", attempt: int = 0) -> None:
        self.endpoint = endpoint
        self.token = token
        self._who = "?" + urllib.parse.urlencode({"task": task, "attempt": attempt}) if task else ""
        """Identifies this attempt, so that the operator can distinguish it from a pod of an earlier attempt on a lost node."""

    def send(self, path: str, folder: str) -> None:
        """Send a folder's files. Raises `fetch.RefusedError` if the operator rejects them, `OSError` if a retry may succeed."""
        names = archive.files_below(folder)
        url = self.endpoint + path + self._who
        put(url, self.token, archive.pack(folder, names), archive.length(folder, names), "application/x-tar")


class CheckpointUploader:
    """Sends new checkpoints while the task runs. It has its own thread, so the program never waits for it."""

    def __init__(self, operator: OperatorUploads, checkpoints: str, outputs: dict[str, str]) -> None:
        self._operator = operator
        self._root = Path(checkpoints)
        self._outputs = outputs
        self._sent: set[tuple[str, int]] = set()
        """Name and sequence of the checkpoints that the operator has, or rejected."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the thread. Existing checkpoints came from the operator and are not sent."""
        self._sent = {(path.name, int(manifest["sequence"])) for path, manifest in checkpoint_folder.finished(self._root)}
        self._thread.start()

    def _run(self) -> None:
        wait = EVERY
        while not self._ended.wait(wait):
            wait = EVERY if self.send_newest() else min(LONGEST, wait * 2)

    def send_newest(self) -> bool:
        """Send the newest checkpoint unless the operator has it; return False if it could not be sent."""
        complete = [
            checkpoint for checkpoint in checkpoint_folder.finished(self._root) if checkpoint[0].name.startswith(_FINISHED)
        ]
        by_sequence = sorted(complete, key=lambda checkpoint: int(checkpoint[1]["sequence"]))
        if not by_sequence:
            return True
        path, manifest = by_sequence[-1]
        mark = (path.name, int(manifest["sequence"]))
        if mark in self._sent:
            return True
        try:
            self._send(path)
        except fetch.RequestRejectedError as error:
            # Sent again, it would be rejected again; the next checkpoint may be accepted.
            _say(f"the operator rejected checkpoint {path.name}: {error}")
        except OSError as error:
            _say(f"checkpoint {path.name} has not been sent to the operator yet: {error}")
            return False
        self._sent.add(mark)
        return True

    def _send(self, path: Path) -> None:
        """Send hard links to the files, because the program may delete old checkpoints meanwhile."""
        temporary = path.with_name(".sent-" + secrets.token_hex(6))
        try:
            shutil.copytree(path, temporary, copy_function=os.link)
            self._operator.send(CHECKPOINTS + path.name, str(temporary))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def finish(self, succeeded: bool, patience: float = PATIENCE, pause: Callable[[float], None] = time.sleep) -> str:
        """Send the remaining data: the last checkpoint, and after a success the outputs. Return what could not be sent."""
        self._ended.set()
        self._thread.join()
        end = time.monotonic() + patience
        failure = "" if _persist(self.send_newest, end, pause) else "the last checkpoint could not be sent to the operator"
        if not succeeded:
            return failure
        for name, folder in self._outputs.items():
            if archive.files_below(folder):
                failure = self._send_output(name, folder, end, pause) or failure
        return failure

    def _send_output(self, name: str, folder: str, end: float, pause: Callable[[float], None]) -> str:
        reason = ""

        def once() -> bool:
            nonlocal reason
            try:
                self._operator.send(OUTPUTS + name, folder)
            except OSError as error:
                reason = str(error)
                return False
            return True

        try:
            sent = _persist(once, end, pause)
        except fetch.RequestRejectedError as error:
            sent, reason = False, str(error)
        return "" if sent else f"the output {name} could not be sent to the operator: {reason}"


def _persist(attempt: Callable[[], bool], end: float, pause: Callable[[float], None]) -> bool:
    wait = EVERY
    while not attempt():
        if time.monotonic() + wait > end:
            return False
        pause(wait)
        wait = min(LONGEST, wait * 2)
    return True


def restore(endpoint: str, token: str, root: str, patience: float = fetch.PATIENCE) -> str:
    """Fetch the newest checkpoint of the run into its folder; return its name, empty if there is none."""
    try:
        return fetch.patiently(lambda: _restored(endpoint, token, root), endpoint, patience)
    except fetch.RequestRejectedError as error:
        if error.missing:
            return ""
        raise


def _restored(endpoint: str, token: str, root: str) -> str:
    os.makedirs(root, exist_ok=True)
    temporary = Path(root) / (".new-" + secrets.token_hex(6))
    temporary.mkdir()
    try:
        with fetch.opened(endpoint + CHECKPOINTS + NEWEST, token) as answer:
            archive.unpack(answer, str(temporary))
        manifest = checkpoint_folder.read_manifest(temporary)
        if manifest is None or not checkpoint_folder.matches(temporary, manifest, deep=True):
            raise archive.BadArchiveError("the checkpoint arrived damaged")
        name = task_contract.STEP_FOLDER.format(step=manifest["step"])
        target = Path(root) / name
        if target.exists():
            checkpoint_folder.discard(target)
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    with open(os.path.join(root, task_contract.LATEST), "w", encoding="utf-8") as file:
        file.write(name + "\n")
    return name


def _say(words: str) -> None:
    sys.stderr.write(f"fairway: {words}\n")
