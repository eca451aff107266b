"""The access log: JSON lines, sampled, written in a thread, with limits on memory and disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fairway.app.system import crash_point
from fairway.serving.router.observation_port import RequestRecord

NAME = "access.jsonl"
FILE_BYTES = 8 * 1024 * 1024
FILES = 5
"""Number of files that are kept: the newest without a number, then `.1` and so on."""
BUFFER_BYTES = 1024 * 1024
"""Limit on the bytes that wait to be written. Further lines are dropped."""
FAILURES_A_SECOND = 10
"""Limit on the lines of failed requests per second, over a longer time."""
FAILURES_AT_ONCE = 100

_GOLDEN = 0.6180339887498949
_FLUSH_BYTES = 64 * 1024
_ENCODER = msgspec.json.Encoder()


class RequestLog:
    """Implements `AccessLog`.

    `share` is the fraction of requests that are logged, 0 to 1. Failed requests (4xx, 5xx, 499) are logged in any case, up to a
    limited rate. `sink` writes bytes and may block; it runs in a thread, one call at a time.
    """

    def __init__(self, share: float, sink: Callable[[bytes], None], wall: Callable[[], float], start: float = 0.0) -> None:
        """Create the log. `start`: where the sampling sequence begins, 0 to 1."""
        self.share = share
        self.written = 0
        self.dropped = 0
        self._sink = sink
        self._wall = wall
        self._at = start
        self._failures = float(FAILURES_AT_ONCE)
        self._lines: list[bytes] = []
        self._size = 0
        self._writing: asyncio.Task[None] | None = None

    def wants(self, status: int) -> bool:
        """Return whether a request that was answered with this status is logged."""
        if status < 400:
            # Multiples of the golden ratio fill the interval evenly, whatever the pattern of the requests.
            self._at = (self._at + _GOLDEN) % 1.0
            return self._at < self.share
        if self._failures >= 1.0:
            self._failures -= 1.0
            return True
        self.dropped += 1
        return False

    def time_of(self, ago: float) -> str:
        """Return the time this many seconds ago, as text with milliseconds."""
        return datetime.fromtimestamp(self._wall() - ago, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def note(self, record: RequestRecord) -> None:
        """Write a line, soon."""
        line = _ENCODER.encode(record) + b"\n"
        if self._size + len(line) > BUFFER_BYTES:
            self.dropped += 1
            return
        self._lines.append(line)
        self._size += len(line)
        if self._size > _FLUSH_BYTES:
            self._flush()

    def sweep(self) -> None:
        """Write pending lines; called every second."""
        self._failures = min(FAILURES_AT_ONCE, self._failures + FAILURES_A_SECOND)
        if self._lines:
            self._flush()

    async def close(self) -> None:
        """Write the remaining lines."""
        if self._writing is not None:
            await self._writing
        if self._lines:
            await self._write()

    def _flush(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        lines, self._lines, self._size = self._lines, [], 0
        try:
            await asyncio.to_thread(self._sink, b"".join(lines))
        except OSError:
            # The disk is full, or the folder is gone. Requests are served all the same.
            self.dropped += len(lines)
        else:
            self.written += len(lines)


class RotatedFile:
    """Appends to a file, and starts another one when it is full. Several processes may append: lines stay whole."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def write(self, data: bytes) -> None:
        """Append bytes; raise `OSError` on failure."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
        if size > FILE_BYTES:
            self._rotate()

    def _rotate(self) -> None:
        for number in range(FILES - 1, 0, -1):
            before = self._path if number == 1 else numbered(self._path, number - 1)
            if before.exists():
                with crash_point.reach("router.rename"):
                    before.replace(numbered(self._path, number))


def numbered(path: Path, number: int) -> Path:
    """Return the file with this number; 0 is the newest."""
    return path.with_name(f"{path.name}.{number}") if number else path


def files(folder: Path) -> list[Path]:
    """Return the existing files of a log, oldest first."""
    newest = folder / NAME
    return [path for number in range(FILES - 1, -1, -1) if (path := numbered(newest, number)).exists()]


def write_to(descriptor: int) -> Callable[[bytes], None]:
    """Return a sink that writes to an open file, such as the output of a pod."""

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(descriptor, data) :]

    return write
