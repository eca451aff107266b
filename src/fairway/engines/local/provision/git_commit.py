"""Finds the commit that a folder of code is at, and gives a copy of the code a small `.git` that shows it.

`git rev-parse HEAD`, `git status` and GitPython then work in the copy as they do in the caller's folder. No history is copied:
the objects stay where they are, and the copy refers to them (`objects/info/alternates`).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PATIENCE = 20.0
"""Timeout of a git command, in seconds."""
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")


def find_commit(folder: Path) -> str:
    """Return the commit that the folder is at; empty when it is in no repository, or git fails."""
    if not _in_repository(folder):
        return ""
    return _git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")


def lay_commit(copy: Path, commit: str, source: Path) -> None:
    """Give a copy of `source` a `.git` that shows its commit. Without the repository's objects it shows nothing else."""
    git = copy / ".git"
    if not commit or os.path.lexists(git):
        return
    (git / "objects" / "info").mkdir(parents=True)
    (git / "refs").mkdir()
    (git / "HEAD").write_text(f"{commit}\n")
    (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    output = _git(source, "rev-parse", "--path-format=absolute", "--git-path", "objects", "--show-prefix")
    objects, _, prefix = output.partition("\n")
    if not objects:
        return
    (git / "objects" / "info" / "alternates").write_text(f"{objects}\n")
    if not prefix:
        # The index with which git compares the files. A part of a repository has no such tree.
        _git(copy, f"--git-dir={git}", "read-tree", commit)


def _in_repository(folder: Path) -> bool:
    """Return whether the folder or a parent has a `.git`. Checked first, because starting git costs milliseconds."""
    top = folder.resolve()
    return any((parent / ".git").exists() for parent in (top, *top.parents))


def _git(folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    try:
        completed = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        # Without git, or in a repository of another user, the copy does not show its commit.
        return ""
    return completed.stdout.strip()
