"""Which bytes of a log are of standard error, as the supervisor notes it where the caller keeps the two apart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fairway.engines.local.supervision.outputs import MARKS as MARKS
from fairway.engines.local.supervision.outputs import PENDING, SPAN
from fairway.runtime.regular import open_regular


class StreamSpans:
    """Reads `out-N.err` beside a log. Without one everything is standard output."""

    def __init__(self, log: Path) -> None:
        try:
            self._handle = open_regular(log.with_suffix(MARKS))
        except OSError:
            self._handle = -1

    def close(self) -> None:
        """Let go of the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def known(self, size: int) -> int:
        """Up to where the streams are known, of a log that had this length before."""
        head = os.pread(self._handle, PENDING.size, 0) if self._handle >= 0 else b""
        pending = PENDING.unpack(head)[0] if len(head) == PENDING.size else -1
        return min(size, pending) if pending >= 0 else size

    def split(self, begin: int, data: bytes) -> list[tuple[bool, bytes]]:
        """The data, which stands at this place of the log, in pieces of one stream each; True: standard error."""
        at, end = begin, begin + len(data)
        found: list[tuple[bool, bytes]] = []
        for low, high in self._spans(begin, end):
            found.append((False, data[at - begin : low - begin]))
            found.append((True, data[low - begin : high - begin]))
            at = high
        found.append((False, data[at - begin :]))
        return [piece for piece in found if piece[1]]

    def _spans(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Within this part of the log, in order."""
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
        # A task may write into its own folder: what is no entry stands for nothing.
        return SPAN.unpack(text) if len(text) == SPAN.size else (0, 0)
