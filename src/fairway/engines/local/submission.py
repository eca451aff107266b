"""Stores what a run needs from its caller: the code, the environment, files sent along."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

from fairway.app.submission import Submission
from fairway.app.system import crash_point
from fairway.engines.local.home import EngineHome
from fairway.engines.local.provision import script_reader
from fairway.engines.local.provision.git_commit import find_commit
from fairway.engines.local.provision.preflight import missing, refuse_without_code, taken_port
from fairway.engines.local.provision.preparer import ENVIRONMENT_FILE, RunInputs, machine_variables
from fairway.engines.local.run_record import SENT_FOLDER, mark_submitting
from fairway.errors import RefusedError
from fairway.launch.launcher_check import examine
from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.spec.job import CodeSource
from fairway.state.job import JobKey, JobState, ShellSettings, SubmissionOrigin
from fairway.views.diagnosis.excluded_path import matters

_MOST_CPUS = 1 << 16
_MOST_LEFT_OUT = 100
"""Limit of paths left out of a snapshot that are stored with a run."""


class LocalSubmissions:
    """The `Submissions` port on the local file system."""

    def __init__(self, home: EngineHome, blobs: BlobStore) -> None:
        self._home = home
        self._blobs = blobs
        self._machine = machine_variables(os.environ)
        self._inputs = RunInputs(DatasetRegistry(home.path, blobs), ModelRegistry(home.path, blobs))

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        """Check the code's folder; take a snapshot of it unless the run works in place."""
        for name in submission.files:
            if Path(name).name != name:
                message = f"the file name {name!r} leads out of its folder"
                raise RefusedError(message, fix="send file names without a folder")
        code, origin = submission.document.spec.code, submission.origin
        _check_conditions(origin.conditions)
        origin = replace(origin, keeps_environment=submission.environment is not None)
        refuse_without_code(submission.document.spec, origin)
        source = _source(code, origin)
        examined = await asyncio.to_thread(examine, submission.document.spec, script_reader.reader(source))
        origin = replace(origin, starters=examined.starters, cautions=examined.cautions)
        if source is None or code.in_place:
            return origin
        snapshot_taken = await asyncio.to_thread(snapshot.take, source, self._blobs)
        commit = await asyncio.to_thread(find_commit, source)
        left_out = tuple(path for path in snapshot_taken.left_out if matters(path))[:_MOST_LEFT_OUT]
        return replace(origin, code_digest=snapshot_taken.digest, commit=commit, left_out=left_out)

    async def missing(self, submission: Submission, port: int = 0) -> list[str]:
        """Return messages about what the run would miss on this machine."""
        messages = await asyncio.to_thread(missing, submission, self._machine, self._inputs.resolve)
        busy = await asyncio.to_thread(taken_port, port) if port else ""
        return [*messages, busy] if busy else messages

    def keep(self, key: JobKey, submission: Submission) -> None:
        """Store environment and files beside the run, readable by their owner only, marked as not recorded yet."""
        if submission.environment is not None or submission.files:
            mark_submitting(self._home.make_job(key))
        if submission.environment is not None:
            _write(self._home.make_job(key) / ENVIRONMENT_FILE, json.dumps(submission.environment).encode())
        if submission.files:
            sent = self._home.make_job(key) / SENT_FOLDER
            sent.mkdir(mode=0o700, exist_ok=True)
            for name, content in submission.files.items():
                _write(sent / name, content)

    async def fingerprint(self, job: JobState) -> str:
        """Return the digest of the folder in which the run works."""
        if not job.spec.code.in_place or not job.origin.folder:
            return ""
        return await asyncio.to_thread(snapshot.fingerprint, Path(job.origin.folder, job.spec.code.path), self._blobs)


def _check_conditions(given: ShellSettings | None) -> None:
    """Refuse numbers that no caller's process has: they could neither be stored nor be set."""
    if given is None:
        return
    pairs = [number for pair in given.limits.values() for number in pair]
    ranges = {
        "nice": ((given.nice,), -20, 19),
        "umask": ((given.umask or 0,), 0, 0o777),
        "affinity": (given.affinity, 0, _MOST_CPUS),
        "limits": (pairs, -1, 2**63 - 1),
    }
    for name, (numbers, least, most) in ranges.items():
        wrong = [number for number in numbers if not least <= number <= most]
        if wrong or len(numbers) > _MOST_CPUS:
            shown = wrong[0] if wrong else f"{len(numbers)} numbers"
            message = f"origin.conditions.{name} has {shown}; it must be between {least} and {most}"
            raise RefusedError(message, fix="send the value of the caller's process, or leave the field out")


def _source(code: CodeSource, origin: SubmissionOrigin) -> Path | None:
    if not code.path and not code.in_place:
        return None
    source = Path(origin.folder, code.path or ".")
    if not source.is_dir():
        message = f"code.path is {code.path!r}: there is no folder {source}"
        raise RefusedError(message, fix="name a folder, relative to the folder in which the command is run")
    return source


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner only."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    with crash_point.reach("engine.rename"):
        aside.replace(path)
