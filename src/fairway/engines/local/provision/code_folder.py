"""Provides the folder in which a run's commands start: the caller's own, or a copy of its code."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from fairway.app.system import crash_point
from fairway.engines.local.home import make_private
from fairway.engines.local.provision.git_commit import lay_commit
from fairway.engines.local.provision.git_fetcher import GitFetcher
from fairway.engines.local.provision.preflight import environments_of
from fairway.engines.local.provision.program_run import Say
from fairway.errors import RefusedError
from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.spec.job import GitSource
from fairway.state.job import JobState

CODE_FOLDER = "code"
FETCHED_FILE = "code.json"
"""File in the run's folder: the commit that was fetched, so that another attempt runs the same."""


class CodeProvider:
    """Provides the code of runs."""

    def __init__(self, home: Path, blobs: BlobStore, variables: Mapping[str, str]) -> None:
        self._blobs = blobs
        self._git = GitFetcher(home / "git", variables)

    async def provide(self, job: JobState, folder: Path, say: Say) -> Path:
        """Return the folder in which the run's commands start.

        `folder` is the run's own; a second call returns the same result.
        """
        code = job.spec.code
        if code.in_place:
            return _in_place(job)
        target = folder / CODE_FOLDER
        if target.is_dir():
            return target
        digest = await self._digest(job, folder, say)
        if not digest:
            return make_private(target)
        await asyncio.to_thread(self._lay_out, job, digest, target)
        return target

    async def _digest(self, job: JobState, folder: Path, say: Say) -> str:
        if job.spec.code.git is not None:
            return await self._fetched(job.spec.code.git, job, folder, say)
        if job.origin.code_digest or not job.spec.code.path:
            return job.origin.code_digest
        source = Path(job.origin.folder, job.spec.code.path)
        return (await asyncio.to_thread(snapshot.take, source, self._blobs)).digest

    async def _fetched(self, source: GitSource, job: JobState, folder: Path, say: Say) -> str:
        note = folder / FETCHED_FILE
        if note.is_file():
            return str(json.loads(note.read_bytes())["digest"])
        tree, commit = await self._git.fetch(source, job.origin.folder, say)
        try:
            # Nothing is ignored: whatever is committed in the repository is meant to be there.
            taken = await asyncio.to_thread(snapshot.take, tree, self._blobs, ignoring=False)
        finally:
            await asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True)
        say(f"code is commit {commit[:12]}")
        aside = note.with_name(f".{note.name}-{secrets.token_hex(4)}")
        aside.write_text(json.dumps({"digest": taken.digest, "commit": commit}))
        with crash_point.reach("registry.rename"):
            os.replace(aside, note)
        return taken.digest

    def _lay_out(self, job: JobState, digest: str, target: Path) -> None:
        source = Path(job.origin.folder, job.spec.code.path)

        def complete(copy: Path) -> None:
            if not job.origin.folder or not job.spec.code.path:
                return
            lay_commit(copy, job.origin.commit, source)
            for name in environments_of(job.spec, source):
                if not os.path.lexists(copy / name):
                    # A virtual environment works only where it was created: link to the caller's own.
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    os.symlink((source / name).resolve(), copy / name)

        snapshot.materialise(snapshot.load(digest, self._blobs), self._blobs, target, complete=complete)


def _in_place(job: JobState) -> Path:
    folder = Path(job.origin.folder, job.spec.code.path)
    if not job.origin.folder or not folder.is_dir():
        message = f"the run works in place, but its folder {str(folder)!r} does not exist"
        raise RefusedError(message, fix="restore the folder, or submit without --in-place")
    return folder
