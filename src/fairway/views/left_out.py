"""What ignore files kept out of a snapshot of code: which of it matters, and how a run that misses it is explained."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from fairway.state.job import Job
from fairway.state.task import Task

_PRODUCTS = re.compile(
    r"(build|dist|node_modules|htmlcov|coverage|site|target|logs?|runs|wandb|mlruns|lightning_logs|outputs?|checkpoints?|tmp|temp"
    r"|\.idea|\.vscode|\.cache|\.eggs|\.coverage|\.python-version|[^/]*\.egg-info)/?"
    r"|[^/]*(\.log|\.tmp|\.swp|\.swo|\.bak|\.orig|\.rej|\.o|\.so|\.pyd|\.egg|~)"
)
"""What programs and tools make themselves."""
_NOT_FOUND = re.compile(r"No such file or directory: b?(?P<quote>['\"])(?P<path>.+?)(?P=quote)")
_COPY = re.compile(r".*/jobs/[^/]+/[^/]+/code/(.+)")
"""Where the copy of a run's code lies: paths below it are the program's own."""


def matters(path: str) -> bool:
    """Whether a run may miss a path that was left out: not what tools leave behind."""
    return not _PRODUCTS.fullmatch(posixpath.basename(path.rstrip("/")) + "/" * path.endswith("/"))


def explain(job: Job, tasks: Sequence[Task]) -> str:
    """What would help a run that did not find a file which was left out of its copy; empty when that is not the cause."""
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
                    f"{path} was left out of the copy of the code by an ignore file; take it along with "
                    f"{_take_back(rule)}, name it under `data:`, or run in place; then {again}"
                )
    return ""


def _left_out_by(path: str, left_out: Sequence[str]) -> str:
    inside = _COPY.fullmatch(path)
    if inside:
        path = inside[1]
    if posixpath.isabs(path):
        return ""
    path = posixpath.normpath(path)
    for one in left_out:
        if path == one.rstrip("/") or (one.endswith("/") and path.startswith(one)):
            return one
    return ""


def _take_back(path: str) -> str:
    return f"`echo '!/{path}' >> .fairwayignore`"
