"""Checkpoints: save state so that after a crash at any moment the newest complete checkpoint can be loaded.

    start = fairway.checkpoint.latest()
    if start:
        model.load_state_dict(torch.load(start.path / "model.pt"))
    for step in range(start.step if start else 0, steps):
        ...
        if fairway.checkpoint.should_checkpoint(step):
            with fairway.checkpoint.save(step, epoch=epoch) as folder:
                torch.save(model.state_dict(), folder / "model.pt")
        if fairway.should_stop():
            break

A checkpoint is a folder `step-000000000123` with a manifest of its files. It is written under another name and renamed when all
data is on the disk, so a folder with a manifest is complete unless the disk is damaged. Outside of a job, checkpoints are stored
in `checkpoints` in the current folder.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairway.runtime import checkpoint_folder, number, stop, task_context, task_contract

KEEP_DEFAULT = 3


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    path: Path
    world_size: int
    meta: dict[str, Any] = field(default_factory=dict)
    """The extra values passed to `save`."""
    sequence: int = 0
    """Incremented with every save of the run, regardless of the steps."""

    def intact(self, *, deep: bool = False) -> bool:
        """Return whether every file exists with its recorded size; `deep` also reads the files and compares their digests."""
        manifest = checkpoint_folder.read_manifest(self.path)
        return manifest is not None and checkpoint_folder.matches(self.path, manifest, deep=deep)


class IncompleteError(RuntimeError):
    """Raised when a sharded save could not be published because a rank did not finish its part in time."""


@contextmanager
def save(step: int, *, sharded: bool = False, keep: int | None = None, timeout: float = 600.0, **meta: Any) -> Iterator[Path]:
    """Save a checkpoint: write files into the yielded folder. It is published when the block ends without an error.

    Rank 0 saves. Other ranks that call this get a folder that is discarded, so the call is safe on every rank. With `sharded`,
    all ranks get the same folder and each writes its own files; rank 0 waits up to `timeout` seconds until every rank has left
    its block, then publishes. In that case, call it on every rank.

    An error in the block, or a crash anywhere, changes nothing: the checkpoint appears completely or not at all. The newest
    `keep` checkpoints are kept (default: as in the document, else 3). `meta` must be JSON.

    Raises:
        IncompleteError: a rank did not finish its part of a sharded save.
        OSError: the disk is full or damaged; earlier checkpoints are unchanged.
    """
    entry = _entry(step, meta)
    _listen()
    root = directory()
    root.mkdir(parents=True, exist_ok=True)
    token = task_context.attempt_token() if sharded else ""
    with checkpoint_folder.aside(root, entry["step"], token, publisher=task_context.rank() == 0) as folder:
        yield folder.path
        if sharded:
            folder.leave_mark(task_context.rank())
        if task_context.rank() != 0:
            return
        if sharded and not folder.wait_for_marks(task_context.world_size(), timeout):
            message = (
                f"checkpoint of step {step}: ranks {folder.missing(task_context.world_size())} did not finish in {timeout:g} s"
            )
            raise IncompleteError(message)
        _publish(root, folder, entry, _keep(keep))
    _pace.saved()
    stop.saved()


def latest(*, deep: bool = False) -> Checkpoint | None:
    """Return the newest intact checkpoint, or None. Damaged checkpoints are skipped.

    Sizes are always compared, digests only with `deep`.
    """
    _listen()
    return next((checkpoint for checkpoint in history() if checkpoint.intact(deep=deep)), None)


def history() -> list[Checkpoint]:
    """Return all complete checkpoints, newest first, including damaged ones."""
    checkpoints = []
    for path, manifest in checkpoint_folder.finished(directory()):
        step, sequence = int(manifest["step"]), int(manifest["sequence"])
        checkpoints.append(Checkpoint(step, path, int(manifest["world_size"]), dict(manifest["meta"]), sequence))
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.sequence, reverse=True)


def directory() -> Path:
    """Return the folder of this run's checkpoints."""
    return Path(os.environ.get(task_contract.CHECKPOINT_DIR) or "checkpoints")


def should_checkpoint(step: int | None = None) -> bool:
    """Return whether to save a checkpoint now.

    Reasons are that the document's interval has passed, that a user requested a checkpoint, or that the run is about to stop. The
    function returns True once for each cause. Rank 0 decides: other ranks always get False, so if all ranks must take part
    (`sharded`), broadcast rank 0's answer. `step` only documents your code; the decision depends on time.
    """
    del step
    _listen()
    return task_context.rank() == 0 and _pace.due()


def _listen() -> None:
    """Accept requests to stop in the process that saves, even if it never calls `should_stop()`."""
    if task_context.rank() == 0:
        stop.listen()


def _entry(step: int, meta: dict[str, Any]) -> dict[str, Any]:
    if number.count(int(step)) is None:
        message = f"step={number.shown(int(step))} is out of range; count from 0 to 2**63 - 1"
        raise ValueError(message)
    try:
        json.dumps(meta)
    except (TypeError, ValueError) as error:
        message = f"the extra values of a checkpoint must be JSON ({error}); write anything else as a file"
        raise TypeError(message) from error
    return {"step": int(step), "world_size": task_context.world_size(), "meta": meta}


def _keep(given: int | None) -> int:
    if given is None:
        return max(1, int(os.environ.get(task_contract.CHECKPOINT_KEEP) or KEEP_DEFAULT))
    if given < 1:
        message = f"keep={given} would leave no checkpoint; give at least 1"
        raise ValueError(message)
    return given


def _publish(root: Path, folder: checkpoint_folder.TemporaryFolder, entry: dict[str, Any], keep: int) -> None:
    earlier = checkpoint_folder.finished(root)
    sequence = 1 + max((int(manifest["sequence"]) for _, manifest in earlier), default=0)
    checkpoint_folder.publish(root, folder, {**entry, "sequence": sequence, "time": time.time()})
    checkpoint_folder.prune(root, keep, task_context.attempt_token())


class _CheckpointSchedule:
    """Decides when to save next. Times are monotonic, except that of a request, which is the time of a file."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._request = _request_time()
        self._told_to_stop = False

    def saved(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        request, stopping = _request_time(), stop.requested()
        every = float(os.environ.get(task_contract.CHECKPOINT_EVERY) or "inf")
        now = time.monotonic()
        if now - self._last < every and request <= self._request and stopping <= self._told_to_stop:
            return False
        self._last, self._request, self._told_to_stop = now, request, stopping
        return True


def _request_time() -> int:
    folder = task_context.shared_dir()
    try:
        return os.stat(folder / task_contract.CHECKPOINT_FILE).st_mtime_ns if folder else 0
    except OSError:
        return 0


_pace = _CheckpointSchedule()
