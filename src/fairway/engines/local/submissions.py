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
from fairway.errors import RefusedError
from fairway.registry import snapshot
from fairway.registry.blobs import Blobs
from fairway.state.job import Job

ENVIRONMENT_FILE = "environment.json"
SENT_FOLDER = "sent"


class LocalSubmissions:
    """The `Submissions` port on the local file system."""

    def __init__(self, home: Home, blobs: Blobs) -> None:
        self._home = home
        self._blobs = blobs

    async def keep(self, job: Job, submission: Submission) -> Job:
        """Snapshot the code, or note its digest for a run in place; keep environment and files."""
        folder = self._home.make_job(job.key)
        code = job.spec.code
        origin = job.origin
        if code.path or code.in_place:
            source = Path(origin.folder, code.path or ".")
            if not source.is_dir():
                message = f"code.path is {code.path!r}: there is no folder {source}"
                raise RefusedError(message, fix="name a folder, relative to where the command is typed")
            if not code.in_place:
                found = await asyncio.to_thread(snapshot.take, source, self._blobs)
                origin = replace(origin, code_digest=found.digest)
        if submission.environment is not None:
            _write(folder / ENVIRONMENT_FILE, json.dumps(submission.environment).encode())
            origin = replace(origin, keeps_environment=True)
        for name, content in submission.files.items():
            sent = folder / SENT_FOLDER
            sent.mkdir(mode=0o700, exist_ok=True)
            if Path(name).name != name:
                message = f"the file name {name!r} leaves its folder"
                raise RefusedError(message, fix="send plain file names")
            _write(sent / name, content)
        return replace(job, origin=origin)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and for the owner alone."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    with crash.reach("engine.rename"):
        aside.replace(path)
