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
from pathlib import Path
from typing import Any

from fairway.runtime import contract, metrics, pattern
from fairway.runtime.eventfolder import LOG, REPORT, SOURCES, TENSORBOARD, EventFolder, joined
from fairway.runtime.growing import GrowingFile

MOST = 10_000
"""Points from lines that wait to be told; when nobody listens for long, the oldest go."""
LONGEST = 1 << 16
"""Bytes of a line that has no end yet; what is longer is no line."""
_ENDS = re.compile(rb"[\r\n]")

Point = dict[str, Any]


class Printed:
    """Reads numbers from what the processes of a task print."""

    def __init__(self, expression: str) -> None:
        self._points: deque[Point] = deque(maxlen=MOST)
        self._begun: dict[int, bytes] = {}
        self._pattern: pattern.LinePattern | None = None
        try:
            self._pattern = pattern.compile_pattern(expression)
        except pattern.PatternError as error:
            sys.stderr.write(f"fairway: metrics.pattern is not read: {error.message}; {error.fix}\n")

    def hear(self, rank: int, data: bytes) -> None:
        """What a process printed next, in pieces of any size."""
        if self._pattern is None:
            return
        *lines, begun = _ENDS.split(self._begun.get(rank, b"") + data)
        # A progress bar ends its lines with a carriage return.
        self._begun[rank] = begun[:LONGEST]
        for line in lines:
            step, numbers = pattern.numbers(self._pattern, line) if line else (None, {})
            if numbers or step is not None:
                self._points.append(_point(time.time(), step, numbers, rank, LOG))

    def new_points(self) -> list[Point]:
        """What was found since the last look."""
        return [self._points.popleft() for _ in range(len(self._points))]


class Measuring:
    """One task's metrics from the best source that has spoken."""

    def __init__(self, folder: str, ranks: int, events: str = "", printed: Printed | None = None) -> None:
        """`folder`: that of the attempt. `events`: where event files may appear, also those of others; empty: none are read."""
        paths = [os.path.join(folder, contract.METRICS_FILE.format(local_rank=rank)) for rank in range(ranks)]
        self._reports = [GrowingFile(Path(path)) for path in paths]
        self._events = EventFolder(Path(events), time.time()) if events else None
        self._host = socket.gethostname()
        self._printed = printed
        self._best = len(SOURCES)

    def new_points(self) -> list[Point]:
        """What is new; of lesser sources nothing any more, once a better one has spoken."""
        found: list[Point] = []
        for rank, read in enumerate((self._reported, self._from_events, self._heard)):
            points = read()
            if rank <= self._best and points:
                self._best = rank
                found += points
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

    def _heard(self) -> list[Point]:
        return self._printed.new_points() if self._printed is not None else []


def _point(moment: float, step: int | None, values: dict[str, float], rank: int, source: str) -> Point:
    return {"time": moment, "step": step, "metrics": values, "rank": rank, "source": source}
