"""A folder of TensorBoard event files as metrics. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from fairway.runtime.growing import EventFile, GrowingFolder

REPORT, TENSORBOARD, LOG = "report", "tensorboard", "log"
SOURCES = (REPORT, TENSORBOARD, LOG)
"""Where metrics come from, the best first: as soon as one has spoken, the lesser ones do not count any more for that run."""

_EVENTS = "tfevents"
_TELLING_RUNS = frozenset({"train", "validation", "val", "valid", "test", "eval"})
"""Names of TensorBoard runs that say what was measured; they become part of a metric's name."""
_MOST_FOLDERS = 1000


class EventFolder:
    """A folder with TensorBoard event files below it."""

    def __init__(self, root: Path, since: float) -> None:
        self.root = root
        self.files: dict[Path, EventFile] = {}
        self._since = since
        self._folders: dict[Path, GrowingFolder] = {root: GrowingFolder(root)}

    def look(self, offset: Callable[[Path], int]) -> None:
        """Find new files, each begun at its offset. Those of earlier runs in the same folder are none of ours."""
        folders_left = list(self._folders.values())
        for folder in folders_left:
            if not folder.changed():
                continue
            for entry in _entries(folder.path):
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    if path not in self._folders and len(self._folders) < _MOST_FOLDERS:
                        self._folders[path] = GrowingFolder(path)
                        folders_left.append(self._folders[path])
                elif _EVENTS in entry.name and path not in self.files and _written(entry) >= self._since - 1.0:
                    self.files[path] = EventFile(path, offset(path))

    def prefix(self, path: Path) -> str:
        """What a file's folder adds to the names of its metrics: `validation/`, where that says what was measured."""
        run = path.parent.name
        return f"{run}/" if run in _TELLING_RUNS and path.parent != self.root else ""


def joined(file: EventFile, prefix: str) -> Iterator[tuple[float, int, dict[str, float]]]:
    """(time, step, values) of one file; the scalars of a step come one by one and are put together."""
    moment, step = 0.0, 0
    values: dict[str, float] = {}
    for found in file.new_scalars():
        if values and found.step != step:
            yield moment, step, values
            values = {}
        moment, step = found.time, found.step
        values.update({prefix + tag: value for tag, value in found.values.items()})
    if values:
        yield moment, step, values


def _written(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []
