"""Reads one log file of one process: finds where to start, and yields the content in pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fairway.engines.local.output.log_index import LogIndex
from fairway.runtime.line_pattern import LinePattern
from fairway.runtime.regular_file import open_regular

BLOCK = 256 * 1024
_LINE_REACH = 64 * 1024
"""How far to search for the end of a line; longer lines are cut."""


class LogFile:
    """An open log. While it is read it may grow, and lose its beginning to a hole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = open_regular(path)
        self._index = LogIndex(path.with_suffix(".index"))

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def size(self) -> int:
        """Return the present length."""
        return os.fstat(self._handle).st_size

    def written(self) -> float:
        """Return the time of the last write."""
        return os.fstat(self._handle).st_mtime

    def first(self) -> int:
        """Return where the content begins: 0, or the first whole line after a hole."""
        size = self.size()
        try:
            start = os.lseek(self._handle, 0, os.SEEK_DATA)
        except OSError:
            # Nothing but a hole, or a file system that does not support SEEK_DATA.
            start = size if size and os.fstat(self._handle).st_blocks == 0 else 0
        while start < size:
            block = os.pread(self._handle, BLOCK, start)
            content = block.lstrip(b"\0")
            start += len(block) - len(content)
            if content or not block:
                break
        return self._next_line(start, size) if start else 0

    def removed(self) -> int:
        """Return the number of bytes that were removed from the beginning to limit the size."""
        state = os.fstat(self._handle)
        # The end of a hole is searched for only when the file has fewer blocks than bytes.
        return self.first() if state.st_blocks * 512 < state.st_size else 0

    def since(self, moment: float, low: int, high: int) -> int:
        """Return the position of the first line written at or after the moment, to the resolution of the index."""
        if self.written() < moment:
            return high
        at = self._index.length_before(moment)
        return min(max(low, self._line_begin(at, low)), high)

    def tail(self, count: int, low: int, high: int, pattern: LinePattern | None) -> tuple[int, int]:
        """Return where the last `count` (matching) lines begin, and their number. Reads backwards, only as far as needed."""
        if count <= 0:
            return high, 0
        matching = 0
        start = high
        for begin, line in self._lines_backwards(low, high):
            if pattern is None or pattern.search(line):
                matching += 1
                start = begin
                if matching == count:
                    break
        return start, matching

    def pieces(self, low: int, high: int) -> Iterator[tuple[float, bytes]]:
        """Yield large pieces of whole lines, each with the time by which its first byte was written."""
        written = self.written()
        while low < high:
            end = self._next_line(min(low + BLOCK, high), high)
            yield self._index.time_of(low) or written, self.read(low, end - low)
            low = end

    def timed_pieces(self, low: int, high: int) -> Iterator[tuple[float, bytes]]:
        """Yield pieces of whole lines, a new one for every entry of the index: for merging several logs."""
        for limit, time in self._limits(low, high):
            while low < limit:
                end = self._next_line(min(low + BLOCK, limit), high)
                yield time, self.read(low, end - low)
                low = end

    def read(self, at: int, length: int) -> bytes:
        """Return the bytes at a position, fewer at the end."""
        return os.pread(self._handle, length, at)

    def _limits(self, low: int, high: int) -> Iterator[tuple[int, float]]:
        for offset, time in self._index.entries_after(low):
            yield min(offset, high), time
            if offset >= high:
                return
        yield high, self.written()

    def _next_line(self, at: int, high: int) -> int:
        """Return the first beginning of a line at or after the position; the end of the file counts as one."""
        if at <= 0 or at >= high:
            return min(max(at, 0), high)
        reach = os.pread(self._handle, min(_LINE_REACH, high - at + 1), at - 1)
        newline = reach.find(b"\n")
        return at + newline if newline >= 0 else min(at - 1 + len(reach), high)

    def _line_begin(self, at: int, low: int) -> int:
        """Return where the line at the position begins. The carriage return of a progress bar starts a line, too."""
        base = max(low, at - _LINE_REACH)
        before = os.pread(self._handle, at - base, base) if at > base else b""
        newline = max(before.rfind(b"\n"), before.rfind(b"\r"))
        return base + newline + 1 if newline >= 0 else base

    def _lines_backwards(self, low: int, high: int) -> Iterator[tuple[int, bytes]]:
        """Yield lines with their positions, from the last to the first. A line longer than a few blocks is cut."""
        rest: list[bytes] = []
        end = high
        while end > low:
            begin = max(low, end - BLOCK)
            block = os.pread(self._handle, end - begin, begin)
            at = len(block)
            if end == high and block.endswith(b"\n"):
                at -= 1
            stop = at
            while (newline := block.rfind(b"\n", 0, stop)) >= 0:
                yield begin + newline + 1, b"".join([block[newline + 1 : at], *rest])
                rest.clear()
                at = stop = newline
            rest.insert(0, block[:at])
            if len(rest) > 8:
                # The beginning of a line decides whether it matches; its end need not stay in memory.
                rest.pop()
            end = begin
        if high > low:
            yield low, b"".join(rest)
