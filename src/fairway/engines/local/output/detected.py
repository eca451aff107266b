"""Metrics of a run that reports none: detected in its printed lines and in the files of its framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from fairway.app.ports import MetricPoint
from fairway.engines.local.output.logindex import LogIndex
from fairway.runtime import number
from fairway.runtime.detect.files import FoundFiles
from fairway.runtime.detect.lines import LineReader
from fairway.runtime.detect.sources import LINES, Sources
from fairway.runtime.eventfolder import AUTO
from fairway.runtime.growing import GrowingFile
from fairway.state.job import Job

NEWEST = 512 << 10
"""Bytes of one log that one look takes; of a program that prints more, the newest lines are read."""
MOST_POINTS = 100
"""Points of one log that one look takes."""


class Detected:
    """What one run's lines and files say. Nothing of it decides a stop condition."""

    def __init__(self, job: Job, work: Path, offset: Callable[[Path], int]) -> None:
        self._sources = Sources(job.spec.stop.decided_by)
        self._files = None if job.spec.tensorboard.dir else FoundFiles(work, job.created, offset)
        self._readers: dict[Path, LineReader] = {}

    def leave_files(self) -> None:
        """Read no files any more."""
        self._files = None

    def positions(self) -> dict[Path, int]:
        """How far the files were read."""
        return self._files.positions() if self._files is not None else {}

    def from_files(self, refuse: number.Refuse) -> Iterator[MetricPoint]:
        """New points of files."""
        for kind, (moment, at, values) in self._files.new_points(refuse) if self._files is not None else ():
            step, kept = self._sources.kept(kind, at, values)
            if kept:
                yield MetricPoint(moment, step, kept, "", AUTO)

    def from_log(self, task: str, file: GrowingFile, refuse: number.Refuse) -> Iterator[MetricPoint]:
        """New points of one log."""
        reader = self._readers.setdefault(file.path, LineReader())
        index = LogIndex(file.path.with_suffix(".index"))
        for moment, at, values in islice(self._read(reader, file, index, refuse), MOST_POINTS):
            step, kept = self._sources.kept(LINES, at, values)
            entry = number.point(moment, step, dict(kept), refuse) if kept else None
            if entry is not None:
                yield MetricPoint(entry[0], entry[1], entry[2], task, AUTO)

    def _read(
        self, reader: LineReader, file: GrowingFile, index: LogIndex, refuse: number.Refuse
    ) -> Iterator[tuple[float, int | None, dict[str, float]]]:
        for offset, line in file.newest_lines(NEWEST, refuse):
            for step, values in reader.read(line):
                yield index.time_of(offset) or file.written, step, values
        for step, values in reader.flush(file.tail):
            yield file.written, step, values
