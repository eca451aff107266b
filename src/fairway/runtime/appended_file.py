"""Files and folders that grow, polled repeatedly: each poll returns only what was added since the last one.

Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from fairway.runtime import event_record, number
from fairway.runtime.regular_file import open_regular

READ_LIMIT = 4 * 1024 * 1024
"""Maximum bytes read from one file per poll; the rest waits for the next poll, so that other files get their turn."""
EVENT_READ_LIMIT = 256 * 1024
"""The same for event files, which take much longer to decode."""
_BLOCK = 1 << 20
_MOST_NAMES = 100_000
"""Maximum number of directory entries examined per folder."""
_TAIL = 4096
_CLOCK_STEP = 20_000_000
"""Nanoseconds by which the kernel's file times may lag."""


class AppendedFile:
    """A file that is only appended to, and the position up to which it was read."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.written = 0.0
        """Modification time at the last poll."""
        self.tail = b""
        """Beginning of the unfinished last line at the last poll."""

    def new_bytes(self, limit: int = READ_LIMIT, refuse: number.Refuse = number.ignore) -> bytes:
        """Return what was appended since `offset`, which the caller advances by the part that it used.

        The result is empty if the file cannot be read or is not a regular one; `refuse` is called with the reason.
        """
        try:
            status = os.stat(self.path)
        except OSError:
            return b""
        self.written = status.st_mtime
        if not stat.S_ISREG(status.st_mode):
            refuse("file", f"{self.path.name} cannot be read: it is not a regular file")
            return b""
        if status.st_size < self.offset:
            self.offset = 0
        if status.st_size == self.offset:
            return b""
        try:
            with os.fdopen(open_regular(self.path), "rb") as file:
                file.seek(self.offset)
                return file.read(limit)
        except OSError as error:
            refuse("file", f"{self.path.name} cannot be read: {error.strerror or error}")
            return b""

    def new_lines(self, refuse: number.Refuse = number.ignore) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, line) for every line completed since the last poll."""
        data = self.new_bytes(refuse=refuse)
        # A progress bar ends its lines with a carriage return.
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) == READ_LIMIT:
            # No line is that long: skip the data, instead of reading it again for ever.
            end = len(data)
        self.tail = data[end : end + _TAIL]
        at, self.offset = self.offset, self.offset + end
        for line in data[:end].splitlines(keepends=True):
            yield at, line.rstrip(b"\r\n")
            at += len(line)

    def newest_lines(self, limit: int, refuse: number.Refuse = number.ignore) -> Iterator[tuple[int, bytes]]:
        """Yield `new_lines` of the last `limit` bytes; anything appended before is skipped."""
        try:
            end = os.path.getsize(self.path)
        except OSError:
            return
        cut = end - self.offset > limit
        if cut:
            self.offset = end - limit
        lines = self.new_lines(refuse)
        if cut:
            # The rest of the line that was cut may look like a complete one.
            next(lines, None)
        yield from lines


class EventFile(AppendedFile):
    """A TensorBoard event file."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        super().__init__(path, offset)
        self.damaged = False

    def new_scalars(self, refuse: number.Refuse = number.ignore) -> Iterator[event_record.EventScalars]:
        """Yield the scalars of every record completed since the last poll. After damage the rest is not read."""
        data = b"" if self.damaged else self.new_bytes(EVENT_READ_LIMIT, refuse)
        start = self.offset
        try:
            for record, end in event_record.records(data):
                self.offset = start + end
                scalars = event_record.scalars(record)
                if scalars:
                    yield scalars
            self._skip_long(data[self.offset - start :])
        except event_record.DamagedEventFileError as error:
            self.damaged = True
            refuse("events", f"{self.path.name} is damaged near byte {self.offset:,} and is not read further: {error}")

    def _skip_long(self, rest: bytes) -> None:
        """Skip a record that is too long to be read by one poll: an image or a graph, never a scalar."""
        if len(rest) >= event_record.HEADER:
            length = event_record.HEADER + event_record.record_length(rest[: event_record.HEADER]) + event_record.FOOTER
            if length > EVENT_READ_LIMIT and self._length() >= self.offset + length:
                self.offset += length

    def _length(self) -> int:
        try:
            return os.path.getsize(self.path)
        except OSError:
            return 0


class PolledFolder:
    """A folder, and whether entries may have been added or removed since the last listing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: int | None = None

    def changed(self) -> bool:
        """Return whether the folder must be listed again; costs one stat."""
        try:
            now = os.stat(self.path).st_mtime_ns
        except OSError:
            return False
        if now == self._seen:
            return False
        # A very recent change may be followed by another one within the same tick of the clock.
        self._seen = now if time.time_ns() - now > _CLOCK_STEP else None
        return True

    def names(self) -> list[str]:
        """Return the sorted names in the folder; an empty list if it no longer exists."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in islice(entries, _MOST_NAMES))
        except OSError:
            return []


def whole_lines(handle: int) -> int:
    """Return the length of the file up to its last line end."""
    end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        at = os.pread(handle, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0
