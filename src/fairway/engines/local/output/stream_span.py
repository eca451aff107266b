"""Determines which bytes of a log are standard error. The supervisor records them where the caller keeps the streams apart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fairway.engines.local.supervision.log_output import MARKS as MARKS
from fairway.engines.local.supervision.log_output import PENDING, SPAN
from fairway.runtime.regular_file import open_regular


class StreamSpans:
    """Reads `out-N.err` beside a log. Without that file everything is standard output."""

    def __init__(self, log: Path) -> None:
        try:
            self._handle = open_regular(log.with_suffix(MARKS))
        except OSError:
            self._handle = -1

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def known(self, size: int) -> int:
        """Return up to where the streams are known. `size` is an earlier length of the log."""
        head = os.pread(self._handle, PENDING.size, 0) if self._handle >= 0 else b""
        pending = PENDING.unpack(head)[0] if len(head) == PENDING.size else -1
        return min(size, pending) if pending >= 0 else size

    def split(self, begin: int, data: bytes) -> list[tuple[bool, bytes]]:
        """Split data at a position of the log into pieces of one stream each; True means standard error."""
        at, end = begin, begin + len(data)
        pieces: list[tuple[bool, bytes]] = []
        for low, high in self._spans(begin, end):
            pieces.append((False, data[at - begin : low - begin]))
            pieces.append((True, data[low - begin : high - begin]))
            at = high
        pieces.append((False, data[at - begin :]))
        return [piece for piece in pieces if piece[1]]

    def _spans(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of standard error within a part of the log, in order."""
        if self._handle < 0:
            return
        count = max(0, os.fstat(self._handle).st_size - PENDING.size) // SPAN.size
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] <= begin:
                low = middle + 1
            else:
                high = middle
        at = begin
        for number in range(low, count):
            first, last = self._entry(number)
            if first >= end:
                return
            first, last = max(first, at), min(last, end)
            if first < last:
                yield first, last
                at = last

    def _entry(self, number: int) -> tuple[int, int]:
        text = os.pread(self._handle, SPAN.size, PENDING.size + number * SPAN.size)
        # A task may write into its own folder: an entry that is too short counts as an empty span.
        return SPAN.unpack(text) if len(text) == SPAN.size else (0, 0)
