"""The index of a log: lines of `offset time`, the length that the log had at a time, both rising.

The bytes between two entries were written between their times. A log of a month has millions of entries, so that positions are
found by bisecting the file, never by reading all of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from fairway.runtime.regular_file import open_regular
from fairway.units import number

_ENTRY_LIMIT = 128
"""Maximum length of an entry in bytes."""
_BLOCK = 64 * 1024

Entry = tuple[int, float]
_Test = Callable[[Entry], bool]


class LogIndex:
    """Reads one index file. A missing file, and a partly written last line, are treated as absent."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def length_before(self, moment: float) -> int:
        """Return the largest length that the log is known to have had before the moment; 0 when none is known."""
        with _OpenIndex(self._path) as file:
            place = file.bisect(lambda entry: entry[1] < moment)
            before = file.entry_ending_at(place)
            return before[0] if before else 0

    def time_of(self, offset: int) -> float | None:
        """Return the time by which the byte at the offset had been written; None when it is not indexed yet."""
        with _OpenIndex(self._path) as file:
            entry = file.entry_at(file.bisect(lambda entry: entry[0] <= offset))
            return entry[1] if entry else None

    def entries_after(self, offset: int) -> Iterator[Entry]:
        """Yield every entry beyond the offset, in order."""
        with _OpenIndex(self._path) as file:
            place = file.bisect(lambda entry: entry[0] <= offset)
            yield from file.entries_from(place)


class _OpenIndex:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1
        self._size = 0

    def __enter__(self) -> Self:
        try:
            self._handle = open_regular(self._path)
            self._size = os.fstat(self._handle).st_size
        except OSError:
            self._handle = -1
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def bisect(self, early: _Test) -> int:
        """Return the position of the first line that is not early."""
        low, high = 0, self._size
        while low < high:
            middle = (low + high) // 2
            start = self._line_start(middle, low)
            entry_and_end = self._line(start)
            # A line that cannot be parsed is the last one, partly written.
            if entry_and_end is not None and early(entry_and_end[0]):
                low = entry_and_end[1]
            else:
                high = start
        return low

    def entry_at(self, place: int) -> Entry | None:
        entry_and_end = self._line(place)
        return entry_and_end[0] if entry_and_end else None

    def entry_ending_at(self, place: int) -> Entry | None:
        return self.entry_at(self._line_start(place - 1, 0)) if place > 0 else None

    def entries_from(self, place: int) -> Iterator[Entry]:
        rest = b""
        while place < self._size and (block := os.pread(self._handle, _BLOCK, place)):
            place += len(block)
            # Text longer than an entry is none, wherever it ends.
            *lines, rest = (rest[-_ENTRY_LIMIT:] + block).split(b"\n")
            for line in lines:
                entry = _parsed(line)
                if entry:
                    yield entry

    def _line_start(self, place: int, low: int) -> int:
        """Return where the line at the position begins."""
        base = max(low, place - _ENTRY_LIMIT)
        before = os.pread(self._handle, place - base, base) if place > base else b""
        at = before.rfind(b"\n")
        return base + at + 1 if at >= 0 else base

    def _line(self, place: int) -> tuple[Entry, int] | None:
        if self._handle < 0:
            return None
        text = os.pread(self._handle, _ENTRY_LIMIT, place)
        end = text.find(b"\n")
        entry = _parsed(text[:end]) if end >= 0 else None
        return (entry, place + end + 1) if entry else None


def _parsed(line: bytes) -> Entry | None:
    parts = line.split()
    try:
        offset, time = number.count(int(parts[0])), number.finite(float(parts[1]))
    except (IndexError, ValueError):
        return None
    return None if offset is None or time is None else (offset, time)
