"""State that survives: save it so that a crash at any moment leaves the newest whole checkpoint to go on from.

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

A checkpoint is a folder `step-000000000123` with a manifest of its files. It is written under another
name and renamed when everything is on the disk, so a folder with a manifest is whole unless the disk is
damaged. Outside of a job the folder is `checkpoints` in the current one.
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

from fairway.runtime import context, contract, folders, number, stop

KEEP_DEFAULT = 3


@dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint."""

    step: int
    path: Path
    world_size: int
    meta: dict[str, Any] = field(default_factory=dict)
    """What was given to `save` besides the step."""
    sequence: int = 0
    """Rises with every save of the run, whatever the steps were."""

    def intact(self, *, deep: bool = False) -> bool:
        """Whether every file is there with its size; `deep` reads them all and compares the digests."""
        manifest = folders.read_manifest(self.path)
        return manifest is not None and folders.matches(self.path, manifest, deep=deep)


class IncompleteError(RuntimeError):
    """A sharded save could not be published because not every rank finished its part in time."""


@contextmanager
def save(step: int, *, sharded: bool = False, keep: int | None = None, timeout: float = 600.0, **meta: Any) -> Iterator[Path]:
    """Write files into the folder given; when the block ends without an error they are a checkpoint.

    Rank 0 saves. Other ranks that call this get a folder that is thrown away, so the call is safe everywhere.
    With `sharded` all ranks get the same folder and each writes its own files; rank 0 waits up to
    `timeout` seconds until every rank has left its block, then publishes. Call it on every rank then.

    Promises: an error in the block, or a crash anywhere, changes nothing; the checkpoint appears whole or
    not at all; the newest `keep` stay (default: what the document says, else 3). `meta` must be JSON.

    Raises:
        IncompleteError: a rank did not finish its part of a sharded save.
        OSError: the disk is full or damaged; what was there before is untouched.
    """
    entry = _entry(step, meta)
    _listen()
    root = directory()
    root.mkdir(parents=True, exist_ok=True)
    token = context.attempt_token() if sharded else ""
    with folders.aside(root, entry["step"], token, publisher=context.rank() == 0) as folder:
        yield folder.path
        if sharded:
            folder.leave_mark(context.rank())
        if context.rank() != 0:
            return
        if sharded and not folder.wait_for_marks(context.world_size(), timeout):
            message = f"checkpoint of step {step}: ranks {folder.missing(context.world_size())} did not finish in {timeout:g} s"
            raise IncompleteError(message)
        _publish(root, folder, entry, _keep(keep))
    _pace.saved()
    stop.saved()


def latest(*, deep: bool = False) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None. Damaged ones are passed over for the one before.

    Sizes are compared always, digests with `deep`.
    """
    _listen()
    return next((found for found in history() if found.intact(deep=deep)), None)


def history() -> list[Checkpoint]:
    """All finished checkpoints, newest first, whole or not."""
    found = []
    for path, manifest in folders.finished(directory()):
        step, sequence = int(manifest["step"]), int(manifest["sequence"])
        found.append(Checkpoint(step, path, int(manifest["world_size"]), dict(manifest["meta"]), sequence))
    return sorted(found, key=lambda one: one.sequence, reverse=True)


def directory() -> Path:
    """Where checkpoints of this run lie."""
    return Path(os.environ.get(contract.CHECKPOINT_DIR) or "checkpoints")


def should_checkpoint(step: int | None = None) -> bool:
    """Whether now is the time to save: the document's interval has passed, somebody asked, or the end is near.

    It says yes once for each cause. Rank 0 decides: other ranks always get False, so where all ranks must
    take part (`sharded`), broadcast rank 0's answer. `step` is for readers of your code; the decision is by time.
    """
    del step
    _listen()
    return context.rank() == 0 and _pace.due()


def _listen() -> None:
    """The process that saves takes requests to stop, also where it never asks `should_stop()`."""
    if context.rank() == 0:
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
    return {"step": int(step), "world_size": context.world_size(), "meta": meta}


def _keep(given: int | None) -> int:
    if given is None:
        return max(1, int(os.environ.get(contract.CHECKPOINT_KEEP) or KEEP_DEFAULT))
    if given < 1:
        message = f"keep={given} would leave no checkpoint; give at least 1"
        raise ValueError(message)
    return given


def _publish(root: Path, folder: folders.Aside, entry: dict[str, Any], keep: int) -> None:
    before = folders.finished(root)
    sequence = 1 + max((int(manifest["sequence"]) for _, manifest in before), default=0)
    folders.publish(root, folder, {**entry, "sequence": sequence, "time": time.time()})
    folders.prune(root, keep, context.attempt_token())


class _Pace:
    """When to save next. Times are monotonic, except that of a request, which is a file's."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._request = _request_time()
        self._told_to_stop = False

    def saved(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        request, stopping = _request_time(), stop.requested()
        every = float(os.environ.get(contract.CHECKPOINT_EVERY) or "inf")
        now = time.monotonic()
        if now - self._last < every and request <= self._request and stopping <= self._told_to_stop:
            return False
        self._last, self._request, self._told_to_stop = now, request, stopping
        return True


def _request_time() -> int:
    folder = context.shared_dir()
    try:
        return os.stat(folder / contract.CHECKPOINT_FILE).st_mtime_ns if folder else 0
    except OSError:
        return 0


_pace = _Pace()
