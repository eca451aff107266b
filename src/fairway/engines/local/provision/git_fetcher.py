"""Fetches code from git: one version of a repository, laid out as a folder. Every argument is data; no shell, no hooks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from fairway.engines.local.provision import program_run
from fairway.engines.local.provision.program_run import Say
from fairway.errors import RefusedError
from fairway.spec.job import GitSource

_SAFE = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "https:ssh:file",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
    "GIT_LFS_SKIP_SMUDGE": "0",
}
_URL = re.compile(r"(?:https|ssh|file)://\S+")
_SCP = re.compile(r"[\w.-]+@[\w.-]+:[^\s-]\S*")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]*")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class GitFetcher:
    """Fetches repositories into bare clones under one folder, so that the next version transfers only what is new."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._variables = {**variables, **_SAFE}
        self._busy: dict[str, asyncio.Lock] = {}

    async def fetch(self, source: GitSource, base: str, say: Say) -> tuple[Path, str]:
        """Return a new folder with the files of the requested version, and its commit. The caller removes the folder."""
        url = checked_url(source.url, base)
        ref = checked_ref(source.ref)
        name = hashlib.sha256(url.encode()).hexdigest()[:24]
        bare = self._folder / f"{name}.git"
        async with self._busy.setdefault(name, asyncio.Lock()):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            say(f"fetching {source.url} at {source.ref}")
            await self._git(["init", "--quiet", "--bare", str(bare)], source, say)
            commit = await self._commit(bare, url, ref, source, say)
            return await self._laid_out(bare, commit, source, say), commit

    async def _commit(self, bare: Path, url: str, ref: str, source: GitSource, say: Say) -> str:
        at = ["--git-dir", str(bare)]
        try:
            await self._git([*at, "fetch", "--quiet", "--force", "--no-tags", "--depth", "1", "--", url, ref], source, say)
            revision = "FETCH_HEAD"
        except RefusedError:
            if not _COMMIT.fullmatch(ref):
                raise
            # A server may refuse to serve single commits, and a short name cannot be fetched: fetch everything, then resolve it.
            refspecs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
            unshallow = ["--unshallow"] if (bare / "shallow").exists() else []
            await self._git([*at, "fetch", "--quiet", "--force", *unshallow, "--", url, *refspecs], source, say)
            revision = ref
        lines = await self._git([*at, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"], source, say)
        return lines[-1]

    async def _laid_out(self, bare: Path, commit: str, source: GitSource, say: Say) -> Path:
        tree = self._folder / f".tree-{secrets.token_hex(6)}"
        index = self._folder / f".index-{secrets.token_hex(6)}"
        tree.mkdir(mode=0o700)
        at = ["--git-dir", str(bare), "--work-tree", str(tree)]
        try:
            for step in (["read-tree", commit], ["checkout-index", "--all", "--force"]):
                await self._git([*at, *step], source, say, {"GIT_INDEX_FILE": str(index)})
        except BaseException:
            shutil.rmtree(tree, ignore_errors=True)
            raise
        finally:
            index.unlink(missing_ok=True)
        return tree

    async def _git(self, words: list[str], source: GitSource, say: Say, more: Mapping[str, str] | None = None) -> list[str]:
        program = shutil.which("git", path=self._variables.get("PATH"))
        if program is None:
            message = "code.git needs the program git, which is not on the path"
            raise RefusedError(message, fix="install git, or give the code as a folder")
        argv = [program, "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", *words]
        code, lines = await program_run.run(argv, cwd=self._folder, env={**self._variables, **(more or {})}, say=say)
        if code != 0:
            message = f"code.git: {source.url} at {source.ref} could not be fetched: {' / '.join(lines) or f'exit code {code}'}"
            raise RefusedError(message, fix="check url and ref with: git ls-remote " + source.url)
        return lines


def checked_url(url: str, base: str) -> str:
    """Return the URL or path, made absolute. Refused when git could read it as anything but a place to fetch from."""
    if not url.startswith("-") and (_URL.fullmatch(url) or _SCP.fullmatch(url)):
        return url
    if url and not url.startswith("-") and "::" not in url and "://" not in url:
        place = Path(base, os.path.expanduser(url))
        if place.is_dir():
            return str(place)
    message = f"code.git.url is {url!r}, which is neither an https, ssh or file URL nor a folder on this machine"
    raise RefusedError(message, fix="write for example https://host/owner/name.git, git@host:owner/name.git or a path")


def checked_ref(ref: str) -> str:
    """Return the branch, tag or commit. Refused when git could read it as an option or a mapping."""
    if _REF.fullmatch(ref) and ".." not in ref and "@{" not in ref:
        return ref
    message = f"code.git.ref is {ref!r}, which is not a valid branch, tag or commit"
    raise RefusedError(message, fix="write for example main, v1.2 or a commit's hexadecimal name")
