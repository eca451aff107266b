"""Paths that ignore files exclude from a code snapshot: which of them matter, and advice for runs that miss them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from fairway.state.job import JobState
from fairway.state.task import Task

_PRODUCTS = re.compile(
    r"(build|dist|node_modules|htmlcov|coverage|site|target|logs?|runs|wandb|mlruns|lightning_logs|outputs?|checkpoints?|tmp|temp"
    r"|\.idea|\.vscode|\.cache|\.eggs|\.coverage|\.python-version|[^/]*\.egg-info)/?"
    r"|[^/]*(\.log|\.tmp|\.swp|\.swo|\.bak|\.orig|\.rej|\.o|\.so|\.pyd|\.egg|~)"
)
"""Names of files and folders that programs and tools create."""
_NOT_FOUND = re.compile(r"No such file or directory: b?(?P<quote>['\"])(?P<path>.+?)(?P=quote)")
_COPY = re.compile(r".*/jobs/[^/]+/[^/]+/code/(.+)")
"""Path of the copy of a run's code; the group is the path inside it."""


def matters(path: str) -> bool:
    """Whether a run may need an excluded path; files that tools create do not matter."""
    return not _PRODUCTS.fullmatch(posixpath.basename(path.rstrip("/")) + "/" * path.endswith("/"))


def explain(job: JobState, tasks: Sequence[Task]) -> str:
    """Return advice for a run that failed because a file was excluded from its snapshot; empty if that is not the cause."""
    if not job.origin.left_out or job.outcome is None:
        return ""
    texts = [task.exit.tail for task in tasks if task.exit is not None and task.exit.tail]
    for text in texts:
        for match in _NOT_FOUND.finditer(text):
            path = match["path"]
            rule = _left_out_by(path, job.origin.left_out)
            if rule:
                again = f"submit {job.series} again" if job.series else "submit it again"
                return (
                    f"{path} was excluded from the copy of the code by an ignore file; include it with "
                    f"{_take_back(rule)}, declare it under `data:`, or run in place; then {again}"
                )
    return ""


def _left_out_by(path: str, left_out: Sequence[str]) -> str:
    match = _COPY.fullmatch(path)
    if match:
        path = match[1]
    if posixpath.isabs(path):
        return ""
    path = posixpath.normpath(path)
    for entry in left_out:
        if path == entry.rstrip("/") or (entry.endswith("/") and path.startswith(entry)):
            return entry
    return ""


def _take_back(path: str) -> str:
    return f"`echo '!/{path}' >> .fairwayignore`"
