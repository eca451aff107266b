"""A folder of TensorBoard event files as metrics. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from fairway.runtime import number
from fairway.runtime.growing import EventFile, GrowingFolder

REPORT, TENSORBOARD, LOG, AUTO = "report", "tensorboard", "log", "auto"
SOURCES = (REPORT, TENSORBOARD, LOG, AUTO)
"""Where metrics come from, the best first: as soon as one has spoken, the lesser ones do not count any more for that run."""

_EVENTS = "tfevents"
_TELLING_RUNS = frozenset({"train", "validation", "val", "valid", "test", "eval"})
"""Names of TensorBoard runs that say what was measured; they become part of a metric's name."""
_MOST_FOLDERS = 1000
_MOST_FILES = 1000
_MOST_ENTRIES = 100_000
"""Names of one folder that are looked at."""


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
            for entry in entries_of(folder.path, _MOST_ENTRIES):
                path = Path(entry.path)
                if is_folder(entry):
                    if path not in self._folders and len(self._folders) < _MOST_FOLDERS:
                        self._folders[path] = GrowingFolder(path)
                        folders_left.append(self._folders[path])
                elif _EVENTS in entry.name and path not in self.files and self._is_ours(entry):
                    self.files[path] = EventFile(path, offset(path))

    def _is_ours(self, entry: os.DirEntry[str]) -> bool:
        return len(self.files) < _MOST_FILES and _written(entry) >= self._since - 1.0

    def prefix(self, path: Path) -> str:
        """What a file's folder adds to the names of its metrics: `validation/`, where that says what was measured."""
        run = path.parent.name
        return f"{run}/" if run in _TELLING_RUNS and path.parent != self.root else ""


def joined(file: EventFile, prefix: str, refuse: number.Refuse = number.ignore) -> Iterator[tuple[float, int, dict[str, float]]]:
    """(time, step, values) of one file; the scalars of a step come one by one and are put together.

    What cannot be stored is left out, and `refuse` is given the reason.
    """
    moment, step = 0.0, 0
    values: dict[str, object] = {}
    for found in file.new_scalars(refuse):
        if values and found.step != step:
            yield from _stored(moment, step, values, refuse)
            values = {}
        moment, step = found.time, found.step
        values.update({prefix + tag: value for tag, value in found.values.items()})
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
    """Whether an entry is a folder; no for one that is gone."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def entries_of(folder: Path, most: int) -> list[os.DirEntry[str]]:
    """The entries of a folder by name, at most so many; none of one that cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, most), key=lambda entry: entry.name)
    except OSError:
        return []
