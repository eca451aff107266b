"""Records of runs in their folders, without the database: enough to restore a run's database record.

`run.json` holds the run as it was when its last attempt was created, or when it ended. `.submitting` exists in a folder from the
first file of a submission until the run's first attempt is created.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from fairway.app.loop.run_recovery import RecordedAttempt, UnreadableRunError
from fairway.app.port.port import Clock
from fairway.app.system import crash_point
from fairway.engines.local import file_lock
from fairway.engines.local.home import LOCK, ORDER, EngineHome
from fairway.engines.local.output.metric_reader import MEMORY_FILE
from fairway.engines.local.provision.preparer import ENVIRONMENT_FILE
from fairway.engines.local.supervision import attempt_record
from fairway.engines.local.task_observer import TaskObserver
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState, RunProgress
from fairway.state.task import TaskKey, TaskReport

RECORD = "run.json"
MARK = ".submitting"
SENT_FOLDER = "sent"
FORMAT = 1

_OF_SUBMIT = frozenset({MARK, ENVIRONMENT_FILE, SENT_FOLDER})
log = logging.getLogger("fairway.engine")


class RunRecordWriter:
    """Writes the records of runs into their folders. A record that cannot be written does not keep a run from running."""

    def __init__(self, home: EngineHome) -> None:
        self._home = home
        self._written: dict[JobKey, tuple[int, bool]] = {}

    def write(self, job: JobState) -> None:
        """Write the run's record once per attempt and once at its end. The folder must exist."""
        state = (job.attempt, job.phase.over)
        folder = self._home.job(job.key)
        if self._written.get(job.key) == state or not folder.is_dir():
            return
        aside = folder / f".{RECORD}"
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_encoded(job))
                file.flush()
                if job.phase.over:
                    os.fsync(file.fileno())
            with crash_point.reach("engine.rename"):
                os.replace(aside, folder / RECORD)
            (folder / MARK).unlink(missing_ok=True)
        except OSError as error:
            log.warning("the record of %s cannot be written to its folder: %s", job.key, error)
            return
        self._written[job.key] = state

    def forget(self, key: JobKey) -> None:
        """Forget a run that is over or deleted."""
        self._written.pop(key, None)


class LocalRunRecords:
    """The `Kept` port on the folders of a home. Reads only, except for `reread`."""

    def __init__(self, home: EngineHome, clock: Clock) -> None:
        self._home = home
        self._observer = TaskObserver(home, clock)

    def keys(self) -> list[JobKey]:
        """Return nothing: every run has a folder."""
        return []

    async def reports(self, keys: Sequence[TaskKey]) -> list[TaskReport]:
        """Return the states that the folders of these attempts show."""
        return [(await self._observer.look(key)).report for key in keys]

    def any(self) -> bool:
        """Return whether any run has a folder."""
        return bool(self._home.jobs())

    def path(self, key: JobKey) -> str:
        """Return the path of the run's folder."""
        return str(self._home.job(key))

    def job(self, key: JobKey) -> JobState:
        """Return the run from the record in its folder. Raises `UnreadableRunError` when that cannot be read."""
        path = self._home.job(key) / RECORD
        try:
            document = json.loads(path.read_bytes())
            if document["format"] > FORMAT:
                message = f"{RECORD} is of format {document['format']}, which a newer Fairway wrote"
                raise UnreadableRunError(message)
            job = msgspec.convert(document["job"], JobState, dec_hook=_rich)
        except FileNotFoundError:
            message = f"there is no {RECORD} in it"
            raise UnreadableRunError(message) from None
        except (OSError, ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
            message = f"{RECORD} cannot be read: {str(error).splitlines()[0]}"
            raise UnreadableRunError(message) from error
        if job.key != key:
            message = f"{RECORD} belongs to {job.key}"
            raise UnreadableRunError(message)
        return job

    def attempts(self, key: JobKey) -> list[RecordedAttempt]:
        """Return the attempts that have a folder."""
        entries = []
        for task in self._home.attempts_of(key):
            order = attempt_record.read_record(str(self._home.attempt(task)), ORDER) or {}
            devices = order.get("devices")
            entries.append(
                RecordedAttempt(
                    task,
                    str(order.get("node") or ""),
                    tuple(str(device) for device in devices) if isinstance(devices, list) else (),
                )
            )
        return entries

    def never_recorded(self, key: JobKey) -> bool:
        """Return whether the folder holds only files of an unfinished submission."""
        folder = self._home.job(key)
        try:
            names = set(os.listdir(folder))
        except OSError:
            return False
        if folder.is_symlink() or not names:
            return not folder.is_symlink()
        # A file that is being written is named after its target, with a dot in front and a process id behind.
        plain = {name for name in names if not name.startswith(f".{ENVIRONMENT_FILE}.")}
        return MARK in names and plain <= _OF_SUBMIT

    def running(self, key: JobKey) -> bool:
        """Return whether a task of the run has a supervisor."""
        return any(file_lock.is_held(self._home.attempt(attempt) / LOCK) for attempt in self._home.attempts_of(key))

    def reread(self, key: JobKey) -> None:
        """Have the metrics of the run read from the start: a restored record has none of them."""
        (self._home.job(key) / MEMORY_FILE).unlink(missing_ok=True)


def mark_submitting(folder: Path) -> None:
    """Mark the folder as having files of a run that is not recorded yet."""
    descriptor = os.open(folder / MARK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.close(descriptor)


def _encoded(job: JobState) -> bytes:
    """Encode a run for people and programs. Metrics are left out: they have files of their own, and JSON cannot represent NaN."""
    progress = RunProgress(checkpoint_step=job.progress.checkpoint_step, checkpoint_time=job.progress.checkpoint_time)
    plain = replace(job, progress=replace(progress, step=job.progress.step), origin=replace(job.origin, stdin=""))
    encoded = msgspec.json.encode({"format": FORMAT, "job": plain}, enc_hook=_plain)
    return msgspec.json.format(encoded, indent=1)


def _plain(value: object) -> object:
    if isinstance(value, JobSpec):
        return value.model_dump(mode="json")
    message = f"{type(value).__name__} cannot be written"
    raise NotImplementedError(message)


def _rich(kind: type, value: object) -> object:
    if kind is JobSpec:
        return JobSpec.model_validate(value)
    message = f"{kind.__name__} cannot be read back"
    raise NotImplementedError(message)
