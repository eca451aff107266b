"""Collect the metrics of a task where it runs: its reports, its TensorBoard files, its output.

Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairway.runtime import line_pattern, metrics, task_contract
from fairway.runtime.appended_file import AppendedFile
from fairway.runtime.event_folder import AUTO, LOG, REPORT, SOURCES, TENSORBOARD, EventFolder, joined
from fairway.runtime.metric_detection.log_line import MetricLineReader
from fairway.runtime.metric_detection.metric_file import MetricFiles
from fairway.runtime.metric_detection.metric_source import LINES, MetricSourceChoice

MOST = 10_000
"""Maximum number of points from lines that wait to be sent; if they are not collected for long, the oldest are dropped."""
HEARD = 1 << 20
"""Bytes per second that are searched for metrics without an expression."""
LONGEST = 1 << 16
"""Maximum bytes kept of an unfinished line; longer data is not a line."""
_ENDS = re.compile(rb"[\r\n]")

Point = dict[str, Any]


class OutputMetrics:
    """Reads numbers from the output of a task's processes: with an expression, or, without one, in the usual formats."""

    def __init__(self, expression: str = "") -> None:
        self._points: deque[Point] = deque(maxlen=MOST)
        self._begun: dict[int, bytes] = {}
        self._pattern: line_pattern.LinePattern | None = None
        self._readers: dict[int, MetricLineReader] | None = None if expression else {}
        self._cut: set[int] = set()
        self._until = 0.0
        self._room = 0
        try:
            self._pattern = line_pattern.compile_pattern(expression) if expression else None
        except line_pattern.PatternError as error:
            sys.stderr.write(f"fairway: metrics.pattern is ignored: {error.message}; {error.fix}\n")

    def hear(self, rank: int, data: bytes) -> None:
        """Process the next output of a process, in pieces of any size."""
        if self._pattern is None and (self._readers is None or not self._has_room(len(data))):
            self._begun.pop(rank, None)
            self._cut.add(rank)
            return
        *lines, unfinished = _ENDS.split(self._begun.get(rank, b"") + data)
        if rank in self._cut and lines:
            # The rest of a line whose beginning was skipped may look like a complete line.
            self._cut.discard(rank)
            lines.pop(0)
        # A progress bar ends its lines with a carriage return.
        self._begun[rank] = unfinished[:LONGEST]
        for line in lines:
            if self._pattern is None:
                self._detect(rank, line)
                continue
            step, numbers = line_pattern.numbers(self._pattern, line) if line else (None, {})
            if numbers or step is not None:
                self._points.append(_point(time.time(), step, numbers, rank, LOG))

    def _detect(self, rank: int, line: bytes) -> None:
        if self._readers is not None and line:
            reader = self._readers.setdefault(rank, MetricLineReader())
            self._points.extend(_point(time.time(), step, values, rank, AUTO) for step, values in reader.read(line))

    def _has_room(self, size: int) -> bool:
        """Return whether `size` more bytes may be searched now, so that a program with a flood of output is not slowed down."""
        now = time.monotonic()
        if now >= self._until:
            self._until, self._room = now + 1.0, HEARD
        self._room -= size
        return self._room >= 0

    def new_points(self) -> list[Point]:
        """Return the points found since the last call."""
        return [self._points.popleft() for _ in range(len(self._points))]


class MetricCollector:
    """The metrics of one task, from the best source that has provided any."""

    def __init__(
        self,
        folder: str,
        ranks: int,
        events: str = "",
        printed: OutputMetrics | None = None,
        work: str = "",
        without: Sequence[str] = (),
    ) -> None:
        """`folder`: that of the attempt.

        `events`: where event files may appear, including those of other pods; empty: none are read.

        `work`: folder below which files of frameworks are searched; empty: no search. `without`: names that are not detected.
        """
        paths = [os.path.join(folder, task_contract.METRICS_FILE.format(local_rank=rank)) for rank in range(ranks)]
        self._reports = [AppendedFile(Path(path)) for path in paths]
        self._events = EventFolder(Path(events), time.time()) if events else None
        self._host = socket.gethostname()
        self._printed = printed
        self._files = MetricFiles(Path(work), time.time(), host=self._host) if work else None
        self._sources = MetricSourceChoice(without)
        self._best = len(SOURCES)

    def new_points(self) -> list[Point]:
        """Return the new points. Lesser sources are ignored once a better one has provided points."""
        new: list[Point] = []
        printed = self._printed.new_points() if self._printed is not None else []
        lines = [point for point in printed if point["source"] == LOG]
        for rank, points in enumerate((self._reported(), self._from_events(), lines)):
            if rank <= self._best and points:
                self._best = rank
                new += points
        if self._best >= SOURCES.index(AUTO):
            new += self._detected([point for point in printed if point["source"] == AUTO])
        return new

    def _reported(self) -> list[Point]:
        points = []
        for rank, file in enumerate(self._reports):
            for _, line in file.new_lines():
                entry = metrics.parse(line)
                if entry:
                    points.append(_point(entry[0], entry[1], entry[2], rank, REPORT))
        return points

    def _from_events(self) -> list[Point]:
        if self._events is None or self._best < SOURCES.index(TENSORBOARD):
            return []
        self._events.look(lambda _path: 0)
        points = []
        for path, file in self._events.files.items():
            # Event files have the host in their names; on a volume that pods share, each pod reads only its own.
            if self._host in path.name:
                points += [
                    _point(moment, step, values, 0, TENSORBOARD)
                    for moment, step, values in joined(file, self._events.prefix(path))
                ]
        return points

    def _detected(self, lines: list[Point]) -> list[Point]:
        from_files: list[tuple[str, Point]] = []
        if self._files is not None:
            from_files += [(kind, _point(*point, 0, AUTO)) for kind, point in self._files.new_points()]
        accepted = []
        for kind, point in [*from_files, *((LINES, line) for line in lines)]:
            step, values = self._sources.kept(kind, point["step"], point["metrics"])
            if values:
                accepted.append({**point, "step": step, "metrics": values})
        return accepted


def _point(moment: float, step: int | None, values: dict[str, float], rank: int, source: str) -> Point:
    return {"time": moment, "step": step, "metrics": values, "rank": rank, "source": source}
