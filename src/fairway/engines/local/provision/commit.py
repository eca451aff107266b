"""The commit that a copy of code belongs to: read where the code lies, and given to the copy as a small `.git`.

`git rev-parse HEAD`, `git status` and GitPython then answer in the copy as they do in the caller's folder. No history is
copied: the objects stay where they are, and the copy refers to them (`objects/info/alternates`).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PATIENCE = 20.0
"""Seconds that git may take to answer."""
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")


def find_commit(folder: Path) -> str:
    """The commit that the folder is at; empty when it lies in no repository, or git does not say."""
    if not _in_repository(folder):
        return ""
    return _git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")


def lay_commit(copy: Path, commit: str, source: Path) -> None:
    """Give a copy of `source` a `.git` that says at which commit it is. Where the repository is gone, it says that only."""
    git = copy / ".git"
    if not commit or os.path.lexists(git):
        return
    (git / "objects" / "info").mkdir(parents=True)
    (git / "refs").mkdir()
    (git / "HEAD").write_text(f"{commit}\n")
    (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    found = _git(source, "rev-parse", "--path-format=absolute", "--git-path", "objects", "--show-prefix")
    objects, _, prefix = found.partition("\n")
    if not objects:
        return
    (git / "objects" / "info" / "alternates").write_text(f"{objects}\n")
    if not prefix:
        # What git compares the files with. Of a part of a repository there is no such tree.
        _git(copy, f"--git-dir={git}", "read-tree", commit)


def _in_repository(folder: Path) -> bool:
    """Whether a folder or one above it has a `.git`: asked first, because starting git costs milliseconds."""
    top = folder.resolve()
    return any((place / ".git").exists() for place in (top, *top.parents))


def _git(folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        # Without git, or in a repository of another user, the copy says nothing of its commit.
        return ""
    return done.stdout.strip()
