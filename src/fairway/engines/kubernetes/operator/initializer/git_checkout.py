"""Check out code from git inside a pod: one version of a repository as a folder. Every argument is data; no shell, no hooks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from fairway.errors import RefusedError

PROTOCOLS = "https:ssh"
_SAFE = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes", "GIT_CONFIG_NOSYSTEM": "1"}
_URL = re.compile(r"(?:https|ssh|file)://\S+|[\w.-]+@[\w.-]+:[^\s-]\S*")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]*")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def clone(url: str, ref: str, target: Path, protocols: str = PROTOCOLS) -> str:
    """Check the version out into the folder and return its commit. Raises `RefusedError`, naming the field and the fix."""
    check(url, ref)
    program = shutil.which("git")
    if program is None:
        message = "code.git needs the program git, and Fairway's image on this cluster has none"
        raise RefusedError(message, fix="have an administrator add git to it, or submit the code as a folder")
    bare = target.parent / f".{target.name}.git"
    run = _GitCommand(program, bare, protocols, f"code.git: {url} at {ref} could not be fetched")
    try:
        run("init", "--quiet", "--bare", str(bare))
        revision = _fetched(run, url, ref)
        commit = run("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
        target.mkdir(parents=True, exist_ok=True)
        run("--work-tree", str(target), "read-tree", commit)
        run("--work-tree", str(target), "checkout-index", "--all", "--force")
    finally:
        shutil.rmtree(bare, ignore_errors=True)
    return commit


def check(url: str, ref: str) -> None:
    """Refuse a URL or ref that git could interpret as anything else. Pure: also called before a pod is created."""
    if url.startswith("-") or not _URL.fullmatch(url):
        message = f"code.git.url is {url!r}, which is not an https or ssh URL"
        raise RefusedError(message, fix="write for example https://host/owner/name.git or git@host:owner/name.git")
    if not _REF.fullmatch(ref) or ".." in ref or "@{" in ref:
        message = f"code.git.ref is {ref!r}, which is not a branch, tag or commit"
        raise RefusedError(message, fix="write for example main, v1.2 or a commit's hexadecimal name")


class _GitCommand:
    """Runs git; its error output becomes part of the error."""

    def __init__(self, program: str, bare: Path, protocols: str, failed: str) -> None:
        self._start = [program, "-c", "core.hooksPath=/dev/null", "--git-dir", str(bare)]
        self._env = {**os.environ, **_SAFE, "GIT_ALLOW_PROTOCOL": protocols}
        self._failed = failed

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self._start, *words], env=self._env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            output = " / ".join(done.stderr.split("\n")).strip(" /") or f"exit code {done.returncode}"
            raise RefusedError(f"{self._failed}: {output}", fix="check url and ref with: git ls-remote")
        return done.stdout


def _fetched(run: _GitCommand, url: str, ref: str) -> str:
    """Fetch the version and return the revision to check out."""
    try:
        run("fetch", "--quiet", "--force", "--no-tags", "--depth", "1", "--", url, ref)
    except RefusedError:
        if not _COMMIT.fullmatch(ref):
            raise
        # A server need not serve single commits, and a short commit cannot be fetched by name: fetch everything instead.
        run("fetch", "--quiet", "--force", "--", url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        return ref
    return "FETCH_HEAD"
