"""The metrics of a task, read where it runs: what it reports, writes for TensorBoard, prints.

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

from fairway.runtime import contract, metrics, pattern
from fairway.runtime.detect.files import FoundFiles
from fairway.runtime.detect.lines import LineReader
from fairway.runtime.detect.sources import LINES, Sources
from fairway.runtime.eventfolder import AUTO, LOG, REPORT, SOURCES, TENSORBOARD, EventFolder, joined
from fairway.runtime.growing import GrowingFile

MOST = 10_000
"""Points from lines that wait to be told; when nobody listens for long, the oldest go."""
HEARD = 1 << 20
"""Bytes a second in which metrics are looked for without an expression."""
LONGEST = 1 << 16
"""Bytes of a line that has no end yet; what is longer is no line."""
_ENDS = re.compile(rb"[\r\n]")

Point = dict[str, Any]


class Printed:
    """Reads numbers from what the processes of a task print: by an expression, or, without one, by the usual formats."""

    def __init__(self, expression: str = "") -> None:
        self._points: deque[Point] = deque(maxlen=MOST)
        self._begun: dict[int, bytes] = {}
        self._pattern: pattern.LinePattern | None = None
        self._readers: dict[int, LineReader] | None = None if expression else {}
        self._cut: set[int] = set()
        self._until = 0.0
        self._room = 0
        try:
            self._pattern = pattern.compile_pattern(expression) if expression else None
        except pattern.PatternError as error:
            sys.stderr.write(f"fairway: metrics.pattern is not read: {error.message}; {error.fix}\n")

    def hear(self, rank: int, data: bytes) -> None:
        """What a process printed next, in pieces of any size."""
        if self._pattern is None and (self._readers is None or not self._has_room(len(data))):
            self._begun.pop(rank, None)
            self._cut.add(rank)
            return
        *lines, begun = _ENDS.split(self._begun.get(rank, b"") + data)
        if rank in self._cut and lines:
            # The rest of a line whose beginning was passed over may look like another one.
            self._cut.discard(rank)
            lines.pop(0)
        # A progress bar ends its lines with a carriage return.
        self._begun[rank] = begun[:LONGEST]
        for line in lines:
            if self._pattern is None:
                self._detect(rank, line)
                continue
            step, numbers = pattern.numbers(self._pattern, line) if line else (None, {})
            if numbers or step is not None:
                self._points.append(_point(time.time(), step, numbers, rank, LOG))

    def _detect(self, rank: int, line: bytes) -> None:
        if self._readers is not None and line:
            reader = self._readers.setdefault(rank, LineReader())
            self._points.extend(_point(time.time(), step, values, rank, AUTO) for step, values in reader.read(line))

    def _has_room(self, size: int) -> bool:
        """Whether so many bytes more may be looked at now: a program that prints a flood is not slowed down by it."""
        now = time.monotonic()
        if now >= self._until:
            self._until, self._room = now + 1.0, HEARD
        self._room -= size
        return self._room >= 0

    def new_points(self) -> list[Point]:
        """What was found since the last look."""
        return [self._points.popleft() for _ in range(len(self._points))]


class Measuring:
    """One task's metrics from the best source that has spoken."""

    def __init__(
        self,
        folder: str,
        ranks: int,
        events: str = "",
        printed: Printed | None = None,
        work: str = "",
        without: Sequence[str] = (),
    ) -> None:
        """`folder`: that of the attempt. `events`: where event files may appear, also those of others; empty: none are read.

        `work`: below which the files of frameworks are looked for; empty: nowhere. `without`: names that are not detected.
        """
        paths = [os.path.join(folder, contract.METRICS_FILE.format(local_rank=rank)) for rank in range(ranks)]
        self._reports = [GrowingFile(Path(path)) for path in paths]
        self._events = EventFolder(Path(events), time.time()) if events else None
        self._host = socket.gethostname()
        self._printed = printed
        self._files = FoundFiles(Path(work), time.time(), host=self._host) if work else None
        self._sources = Sources(without)
        self._best = len(SOURCES)

    def new_points(self) -> list[Point]:
        """What is new; of lesser sources nothing any more, once a better one has spoken."""
        found: list[Point] = []
        heard = self._printed.new_points() if self._printed is not None else []
        lines = [point for point in heard if point["source"] == LOG]
        for rank, points in enumerate((self._reported(), self._from_events(), lines)):
            if rank <= self._best and points:
                self._best = rank
                found += points
        if self._best >= SOURCES.index(AUTO):
            found += self._detected([point for point in heard if point["source"] == AUTO])
        return found

    def _reported(self) -> list[Point]:
        found = []
        for rank, file in enumerate(self._reports):
            for _, line in file.new_lines():
                entry = metrics.parse(line)
                if entry:
                    found.append(_point(entry[0], entry[1], entry[2], rank, REPORT))
        return found

    def _from_events(self) -> list[Point]:
        if self._events is None or self._best < SOURCES.index(TENSORBOARD):
            return []
        self._events.look(lambda _path: 0)
        found = []
        for path, file in self._events.files.items():
            # The names of event files have the host in them; on a volume that pods share each tells of its own.
            if self._host in path.name:
                found += [
                    _point(moment, step, values, 0, TENSORBOARD)
                    for moment, step, values in joined(file, self._events.prefix(path))
                ]
        return found

    def _detected(self, lines: list[Point]) -> list[Point]:
        found: list[tuple[str, Point]] = []
        if self._files is not None:
            found += [(kind, _point(*point, 0, AUTO)) for kind, point in self._files.new_points()]
        kept = []
        for kind, point in [*found, *((LINES, line) for line in lines)]:
            step, values = self._sources.kept(kind, point["step"], point["metrics"])
            if values:
                kept.append({**point, "step": step, "metrics": values})
        return kept


def _point(moment: float, step: int | None, values: dict[str, float], rank: int, source: str) -> Point:
    return {"time": moment, "step": step, "metrics": values, "rank": rank, "source": source}
