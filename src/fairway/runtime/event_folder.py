"""Read a folder of TensorBoard event files as metrics. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from fairway.runtime import number
from fairway.runtime.appended_file import EventFile, PolledFolder

REPORT, TENSORBOARD, LOG, AUTO = "report", "tensorboard", "log", "auto"
SOURCES = (REPORT, TENSORBOARD, LOG, AUTO)
"""Sources of metrics, best first: once one has provided metrics, the lesser ones are ignored for that run."""

_EVENTS = "tfevents"
_TELLING_RUNS = frozenset({"train", "validation", "val", "valid", "test", "eval"})
"""Names of TensorBoard runs that indicate what was measured; they become part of a metric's name."""
_MOST_FOLDERS = 1000
_MOST_FILES = 1000
_MOST_ENTRIES = 100_000
"""Maximum number of directory entries examined per folder."""


class EventFolder:
    """A folder that contains TensorBoard event files at any depth."""

    def __init__(self, root: Path, since: float) -> None:
        self.root = root
        self.files: dict[Path, EventFile] = {}
        self._since = since
        self._folders: dict[Path, PolledFolder] = {root: PolledFolder(root)}

    def look(self, offset: Callable[[Path], int]) -> None:
        """Find new files, and start each at its offset. Files of earlier runs in the same folder are ignored."""
        pending = list(self._folders.values())
        for folder in pending:
            if not folder.changed():
                continue
            for entry in entries_of(folder.path, _MOST_ENTRIES):
                path = Path(entry.path)
                if is_folder(entry):
                    if path not in self._folders and len(self._folders) < _MOST_FOLDERS:
                        self._folders[path] = PolledFolder(path)
                        pending.append(self._folders[path])
                elif _EVENTS in entry.name and path not in self.files and self._is_ours(entry):
                    self.files[path] = EventFile(path, offset(path))

    def _is_ours(self, entry: os.DirEntry[str]) -> bool:
        return len(self.files) < _MOST_FILES and _written(entry) >= self._since - 1.0

    def prefix(self, path: Path) -> str:
        """Return the prefix that a file's folder adds to the names of its metrics.

        It is not empty only if the folder's name indicates what was measured: `validation/`.
        """
        run = path.parent.name
        return f"{run}/" if run in _TELLING_RUNS and path.parent != self.root else ""


def joined(file: EventFile, prefix: str, refuse: number.Refuse = number.ignore) -> Iterator[tuple[float, int, dict[str, float]]]:
    """Yield (time, step, values) of one file; the scalars of a step are stored separately and are merged.

    Values that cannot be stored are left out, and `refuse` is called with the reason.
    """
    moment, step = 0.0, 0
    values: dict[str, object] = {}
    for scalars in file.new_scalars(refuse):
        if values and scalars.step != step:
            yield from _stored(moment, step, values, refuse)
            values = {}
        moment, step = scalars.time, scalars.step
        values.update({prefix + tag: value for tag, value in scalars.values.items()})
    if values:
        yield from _stored(moment, step, values, refuse)


def _stored(
    moment: float, step: int, values: dict[str, object], refuse: number.Refuse
) -> Iterator[tuple[float, int, dict[str, float]]]:
    point = number.point(moment, step, values, refuse)
    if point is not None:
        yield point[0], step, point[2]


def _written(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder; False if it no longer exists."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def entries_of(folder: Path, most: int) -> list[os.DirEntry[str]]:
    """Return the entries of a folder in order of name, at most `most`; an empty list if the folder cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, most), key=lambda entry: entry.name)
    except OSError:
        return []
