"""Keeps what a run needs from its caller: the code, the environment, files sent along."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

from fairway.app import crash
from fairway.app.submission import Submission
from fairway.engines.local.folders import Home
from fairway.engines.local.kept import SENT_FOLDER, mark_submitting
from fairway.engines.local.provision.prepare import ENVIRONMENT_FILE
from fairway.errors import RefusedError
from fairway.registry import snapshot
from fairway.registry.blobs import Blobs
from fairway.spec.job import Code
from fairway.state.job import Job, JobKey, Origin


class LocalSubmissions:
    """The `Submissions` port on the local file system."""

    def __init__(self, home: Home, blobs: Blobs) -> None:
        self._home = home
        self._blobs = blobs

    async def receive(self, submission: Submission) -> Origin:
        """Check the code's folder; snapshot it unless the run works in place."""
        for name in submission.files:
            if Path(name).name != name:
                message = f"the file name {name!r} leaves its folder"
                raise RefusedError(message, fix="send plain file names")
        code, origin = submission.document.spec.code, submission.origin
        origin = replace(origin, keeps_environment=submission.environment is not None)
        source = _source(code, origin)
        if source is None or code.in_place:
            return origin
        found = await asyncio.to_thread(snapshot.take, source, self._blobs)
        return replace(origin, code_digest=found.digest)

    def keep(self, key: JobKey, submission: Submission) -> None:
        """Keep environment and files beside the run, for its owner alone, marked as not recorded yet."""
        if submission.environment is not None or submission.files:
            mark_submitting(self._home.make_job(key))
        if submission.environment is not None:
            _write(self._home.make_job(key) / ENVIRONMENT_FILE, json.dumps(submission.environment).encode())
        if submission.files:
            sent = self._home.make_job(key) / SENT_FOLDER
            sent.mkdir(mode=0o700, exist_ok=True)
            for name, content in submission.files.items():
                _write(sent / name, content)

    async def fingerprint(self, job: Job) -> str:
        """The digest of the folder in which the run works."""
        if not job.spec.code.in_place or not job.origin.folder:
            return ""
        return await asyncio.to_thread(snapshot.fingerprint, Path(job.origin.folder, job.spec.code.path), self._blobs)


def _source(code: Code, origin: Origin) -> Path | None:
    if not code.path and not code.in_place:
        return None
    source = Path(origin.folder, code.path or ".")
    if not source.is_dir():
        message = f"code.path is {code.path!r}: there is no folder {source}"
        raise RefusedError(message, fix="name a folder, relative to where the command is typed")
    return source


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and for the owner alone."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    with crash.reach("engine.rename"):
        aside.replace(path)
