"""Detect metrics in files that frameworks write on their own.

TensorBoard's, Lightning's and Hugging Face's files are searched in their usual places below the working folder. Only files
written during the run are read. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairway.runtime import number
from fairway.runtime.appended_file import AppendedFile, PolledFolder
from fairway.runtime.event_folder import EventFolder, entries_of, is_folder, joined
from fairway.runtime.metric_detection import metric_source
from fairway.runtime.regular_file import read_regular

USUAL = ("runs", "logs", "lightning_logs", "tb_logs", "tensorboard")
"""Usual folders of event files, in the working folder or in one of its subfolders, such as the `output_dir` of a Trainer."""
TABLE, STATE = "metrics.csv", "trainer_state.json"
_CSV_FOLDER = "lightning_logs"
_LIMIT = 4 << 20
"""Maximum size in bytes of a table or of a state file; larger files are not read at all."""
_EVENT_LIMIT = 1 << 20
_MOST_FOLDERS = 200
_MOST_ENTRIES = 10_000
"""Maximum number of directory entries examined per folder."""
_CHECKPOINT = "checkpoint-"
_MOST_STATES = 1000
_AT = ("step", "global_step")
_NO_METRICS = frozenset({"step", "global_step", "epoch", "total_flos", "train_runtime", "eval_runtime"})

Point = tuple[float, "int | None", dict[str, float]]
Offset = Callable[[Path], int]


class MetricFiles:
    """Finds the metric files of one run below its working folder.

    Checking folders in which nothing changed costs one stat each; one call reads a bounded number of bytes.
    """

    def __init__(self, work: Path, since: float, offset: Offset = lambda _path: 0, host: str = "") -> None:
        """`since`: creation time of the run; files not modified after it belong to other runs.

        `host`: event files without it in their name belong to others too.
        """
        self._since = since
        self._offset = offset
        self._host = host
        self._work = work
        self._folders: dict[Path, PolledFolder] = {work: PolledFolder(work)}
        self._events: dict[Path, EventFolder] = {}
        self._tables: dict[Path, CsvMetricFile] = {}
        self._history = TrainerStateFile(work, since, offset(work / STATE))
        self._versions: dict[Path, PolledFolder] = {}

    def new_points(self, refuse: number.Refuse = number.ignore) -> Iterator[tuple[str, Point]]:
        """Yield (kind of file, point) for all new points, the best kind first."""
        self._look()
        read = 0
        for folder in list(self._events.values()):
            folder.look(self._offset)
            for path, file in folder.files.items():
                if self._host not in path.name or read >= _EVENT_LIMIT:
                    continue
                start_offset = file.offset
                for moment, step, values in joined(file, folder.prefix(path), refuse):
                    yield metric_source.EVENTS, (moment, step, values)
                read += max(0, file.offset - start_offset)
        for table in list(self._tables.values()):
            for point in table.new_points(refuse):
                yield metric_source.TABLE, point
        for point in self._history.new_points(refuse):
            yield metric_source.STATE, point

    def positions(self) -> dict[Path, int]:
        """Return how far each file was read."""
        offsets = {path: file.offset for folder in self._events.values() for path, file in folder.files.items()}
        offsets.update((path, table.offset) for path, table in self._tables.items())
        offsets[self._history.path] = self._history.offset
        return {path: offset for path, offset in offsets.items() if offset}

    def _look(self) -> None:
        """Find new folders and tables."""
        first_new = len(self._folders)
        for folder in list(self._folders.values()):
            self._list(folder)
        for folder in list(self._folders.values())[first_new:]:
            self._list(folder)
        for path, versions in self._versions.items():
            if versions.changed():
                for name in versions.names():
                    table = path / name / TABLE
                    if name.startswith("version_") and table not in self._tables and len(self._tables) < _MOST_FOLDERS:
                        self._tables[table] = CsvMetricFile(table, self._since, self._offset(table))

    def _list(self, folder: PolledFolder) -> None:
        if folder.changed():
            for entry in entries_of(folder.path, _MOST_ENTRIES):
                self._take(folder.path, entry)

    def _take(self, parent: Path, entry: os.DirEntry[str]) -> None:
        path = Path(entry.path)
        if entry.name == STATE:
            self._history.offer(path)
        elif path in self._folders or path in self._events or not is_folder(entry):
            return
        elif entry.name in USUAL:
            self._events[path] = EventFolder(path, self._since)
            if entry.name == _CSV_FOLDER:
                self._versions[path] = PolledFolder(path)
        elif entry.name.startswith(_CHECKPOINT):
            self._history.offer(path / STATE)
        elif parent == self._work and not entry.name.startswith(".") and len(self._folders) < _MOST_FOLDERS:
            self._folders[path] = PolledFolder(path)


class CsvMetricFile(AppendedFile):
    """A table of Lightning's CSVLogger. Its `offset` counts rows, because the file is rewritten when a column is added."""

    def __init__(self, path: Path, since: float, offset: int) -> None:
        super().__init__(path, offset)
        self._since = since
        self._seen = (0, 0)

    def new_points(self, refuse: number.Refuse) -> Iterator[Point]:
        """Yield the points of new rows."""
        try:
            status = os.stat(self.path)
            if (status.st_size, status.st_mtime_ns) == self._seen or status.st_mtime < self._since - 1.0:
                return
            self._seen = status.st_size, status.st_mtime_ns
            lines = read_regular(self.path, _LIMIT).decode("utf-8", "replace").splitlines(keepends=True)
        except OSError as error:
            refuse("file", f"{self.path.name} cannot be read: {error.strerror or error}")
            return
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
        for row in csv.DictReader(lines[:1] + lines[1 + self.offset :]):
            self.offset += 1
            values = {name: _number(text) for name, text in row.items() if name and isinstance(text, str) and text}
            yield from _point(status.st_mtime, values, refuse)


class TrainerStateFile:
    """The newest `trainer_state.json`. Each file holds everything logged until then."""

    def __init__(self, work: Path, since: float, offset: int) -> None:
        self.path = work / STATE
        """The key of the read position. The file itself moves from checkpoint to checkpoint."""
        self.offset = offset
        self._since = since
        self._offered: dict[Path, bool] = {}
        """Whether each file was read. A checkpoint's folder exists before the file is written into it."""

    def offer(self, path: Path) -> None:
        """Add a state file that exists or will exist."""
        if len(self._offered) < _MOST_STATES:
            self._offered.setdefault(path, False)

    def new_points(self, refuse: number.Refuse) -> Iterator[Point]:
        """Yield the points of new entries."""
        for path in [path for path, read in self._offered.items() if not read]:
            try:
                moment = os.stat(path).st_mtime
                self._offered[path] = moment < self._since - 1.0
                state = None if self._offered[path] else json.loads(read_regular(path, _LIMIT))
            except (OSError, ValueError, RecursionError):
                continue
            self._offered[path] = True
            logged = state.get("log_history") if isinstance(state, dict) else None
            for entry in (logged if isinstance(logged, list) else [])[self.offset :]:
                self.offset += 1
                if isinstance(entry, dict):
                    yield from _point(moment, entry, refuse)


def _point(moment: float, values: dict[str, Any], refuse: number.Refuse) -> Iterator[Point]:
    step = next((number.int64(values[name]) for name in _AT if name in values), None)
    metrics: dict[str, object] = {
        name: value for name, value in values.items() if name not in _NO_METRICS and number.real(value) is not None
    }
    point = number.point(moment, step, metrics, refuse) if metrics else None
    if point is not None:
        yield point


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
