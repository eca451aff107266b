"""Detects metrics of a run that reports none, in its printed lines and in files of its framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from fairway.app.port.port import MetricPoint
from fairway.engines.local.output.log_index import LogIndex
from fairway.runtime import number
from fairway.runtime.appended_file import AppendedFile
from fairway.runtime.event_folder import AUTO
from fairway.runtime.metric_detection.log_line import MetricLineReader
from fairway.runtime.metric_detection.metric_file import MetricFiles
from fairway.runtime.metric_detection.metric_source import LINES, MetricSourceChoice
from fairway.state.job import JobState

NEWEST = 512 << 10
"""Limit of bytes read from one log at a time; of a program that prints more, the newest lines are read."""
MOST_POINTS = 100
"""Limit of points taken from one log at a time."""


class MetricDetector:
    """Detects metrics in the lines and files of one run. Stop conditions ignore them."""

    def __init__(self, job: JobState, work: Path, offset: Callable[[Path], int]) -> None:
        self._sources = MetricSourceChoice(job.spec.stop.decided_by)
        self._files = None if job.spec.tensorboard.dir else MetricFiles(work, job.created, offset)
        self._readers: dict[Path, MetricLineReader] = {}

    def leave_files(self) -> None:
        """Stop reading files."""
        self._files = None

    def positions(self) -> dict[Path, int]:
        """Return the read positions of the files."""
        return self._files.positions() if self._files is not None else {}

    def from_files(self, refuse: number.Refuse) -> Iterator[MetricPoint]:
        """Yield new points from files."""
        for kind, (moment, step_seen, values) in self._files.new_points(refuse) if self._files is not None else ():
            step, metrics = self._sources.kept(kind, step_seen, values)
            if metrics:
                yield MetricPoint(moment, step, metrics, "", AUTO)

    def from_log(self, task: str, file: AppendedFile, refuse: number.Refuse) -> Iterator[MetricPoint]:
        """Yield new points from one log."""
        reader = self._readers.setdefault(file.path, MetricLineReader())
        index = LogIndex(file.path.with_suffix(".index"))
        for moment, step_seen, values in islice(self._read(reader, file, index, refuse), MOST_POINTS):
            step, metrics = self._sources.kept(LINES, step_seen, values)
            entry = number.point(moment, step, dict(metrics), refuse) if metrics else None
            if entry is not None:
                yield MetricPoint(entry[0], entry[1], entry[2], task, AUTO)

    def _read(
        self, reader: MetricLineReader, file: AppendedFile, index: LogIndex, refuse: number.Refuse
    ) -> Iterator[tuple[float, int | None, dict[str, float]]]:
        for offset, line in file.newest_lines(NEWEST, refuse):
            for step, values in reader.read(line):
                yield index.time_of(offset) or file.written, step, values
        for step, values in reader.flush(file.tail):
            yield file.written, step, values
