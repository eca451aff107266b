"""The code of runs, from git."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from fairway.engines.local.provision.code_folder import CodeProvider
from fairway.errors import RefusedError
from fairway.registry.blob import BlobStore
from fairway.spec.job import CodeSource, GitSource, JobSpec, TaskRole
from fairway.state.job import JobKey, JobState, SubmissionOrigin

IDENTITY = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.environ["PATH"],
}  # fmt: skip


def commit(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(text)
    (folder / ".gitignore").write_text("*.py\n")
    for words in (["init", "--quiet"], ["add", "--all", "--force"], ["commit", "--quiet", "--message", text]):
        subprocess.run(["git", *words], cwd=folder, env=IDENTITY, check=True)
    completed = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, env=IDENTITY, check=True, capture_output=True, text=True)
    return completed.stdout.strip()


def provide(tmp_path: Path, name: str) -> Path:
    job = JobState(
        JobKey("default", name),
        "x",
        1,
        JobSpec(roles={"worker": TaskRole(command=("x",))}, code=CodeSource(git=GitSource(url="origin"))),
        origin=SubmissionOrigin(folder=str(tmp_path)),
    )
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    place = CodeProvider(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"), IDENTITY)
    return asyncio.run(place.provide(job, folder, lambda _: None))


def test_a_run_keeps_the_commit_that_it_began_with(tmp_path: Path) -> None:
    first = commit(tmp_path / "origin", "one")
    code = provide(tmp_path, "x-1")
    # Tracked files are code, whatever the ignore rules say.
    assert (code / "train.py").read_text() == "one"
    commit(tmp_path / "origin", "two")
    assert json.loads((tmp_path / "x-1" / "code.json").read_text())["commit"] == first
    for path in code.iterdir():
        path.unlink()
    code.rmdir()
    assert (provide(tmp_path, "x-1") / "train.py").read_text() == "one"
    assert (provide(tmp_path, "x-2") / "train.py").read_text() == "two"
    assert not list((tmp_path / "home" / "git").glob(".tree-*"))


def test_a_repository_with_a_link_to_the_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "origin").mkdir()
    (tmp_path / "origin" / "passwords").symlink_to("/etc/passwd")
    commit(tmp_path / "origin", "one")
    with pytest.raises(RefusedError, match="passwords is a link"):
        provide(tmp_path, "x-1")
    assert not list((tmp_path / "home" / "git").glob(".tree-*"))
