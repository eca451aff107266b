"""Fetching from real repositories, and requests that git must never make."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from fairway.engines.local.provision.git_fetcher import GitFetcher, checked_ref, checked_url
from fairway.errors import RefusedError
from fairway.spec.job import GitSource

IDENTITY = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.environ["PATH"], "HOME": "/nonexistent",
}  # fmt: skip


class Repository:
    """A repository with two commits, a tag and a branch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")
        self.first = self.commit("one")
        self.git("tag", "v1")
        self.git("branch", "old")
        self.second = self.commit("two")

    def git(self, *words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=self.folder, env=IDENTITY, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, text: str) -> str:
        (self.folder / "train.py").write_text(text)
        (self.folder / "run.sh").write_text("#!/bin/sh\n")
        (self.folder / "run.sh").chmod(0o755)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", text)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "origin")


def fetch(tmp_path: Path, url: str, ref: str = "HEAD") -> tuple[Path, str]:
    fetcher = GitFetcher(tmp_path / "git", IDENTITY)
    return asyncio.run(fetcher.fetch(GitSource(url=url, ref=ref), str(tmp_path), lambda _: None))


@pytest.mark.parametrize(("ref", "text"), [("HEAD", "two"), ("main", "two"), ("old", "one"), ("v1", "one")])
def test_branches_and_tags(tmp_path: Path, repository: Repository, ref: str, text: str) -> None:
    tree, commit = fetch(tmp_path, f"file://{repository.folder}", ref)
    assert (tree / "train.py").read_text() == text
    assert os.access(tree / "run.sh", os.X_OK)
    assert commit == (repository.second if text == "two" else repository.first)
    assert not (tree / ".git").exists()


@pytest.mark.parametrize("length", [40, 8])
def test_commits_whole_and_short(tmp_path: Path, repository: Repository, length: int) -> None:
    fetch(tmp_path, f"file://{repository.folder}")
    tree, commit = fetch(tmp_path, f"file://{repository.folder}", repository.first[:length])
    assert (commit, (tree / "train.py").read_text()) == (repository.first, "one")


def test_a_path_relative_to_the_caller(tmp_path: Path, repository: Repository) -> None:
    assert fetch(tmp_path, "origin")[1] == repository.second


def test_what_was_pushed_since_is_seen(tmp_path: Path, repository: Repository) -> None:
    fetch(tmp_path, "origin")
    third = repository.commit("three")
    assert fetch(tmp_path, "origin")[1] == third


def test_hooks_of_the_repository_do_not_run(tmp_path: Path, repository: Repository) -> None:
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        hook = repository.folder / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    fetch(tmp_path, "origin")
    assert not (tmp_path / "ran").exists()


def test_a_missing_ref_says_what_git_said(tmp_path: Path, repository: Repository) -> None:
    with pytest.raises(RefusedError, match=r"at nowhere could not be fetched.*nowhere"):
        fetch(tmp_path, "origin", "nowhere")
    assert not list((tmp_path / "git").glob(".*"))


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch /tmp/x",
        "-x",
        "ext::sh -c id",
        "git://host/x",
        "http://host/x",
        "fd::3",
        "",
        "no-such-folder",
        "https://a b",
    ],
)
def test_urls_that_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(RefusedError, match=r"code\.git\.url"):
        checked_url(url, str(tmp_path))


@pytest.mark.parametrize("url", ["https://host/a.git", "ssh://git@host/a", "git@host:owner/a.git", "file:///srv/a.git"])
def test_urls_that_are_taken(url: str) -> None:
    assert checked_url(url, "/") == url


@pytest.mark.parametrize("ref", ["--all", "a:b", "a..b", "a b", "+main", "", "x@{1}", "a\n"])
def test_refs_that_are_refused(ref: str) -> None:
    with pytest.raises(RefusedError, match=r"code\.git\.ref"):
        checked_ref(ref)
