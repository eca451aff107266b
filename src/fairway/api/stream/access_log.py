"""The access log of a service as text: one line of JSON per request, oldest first."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

from fairway.app.port.port import LogQuery
from fairway.serving.router.observe.access_log import FILES, NAME, files, numbered

_LOOK_SECONDS = 0.5
"""Interval at which a followed log is read, in seconds."""
_PIECE = 1024 * 1024
_TIME = re.compile(rb'^\{"time":"([^"]{10,40})"')


async def access_lines(folder: Path, query: LogQuery) -> AsyncIterator[bytes]:
    """Yield the lines that match the query; with `follow`, until the reader disconnects."""
    end, data = _end(folder / NAME), b""
    for piece in await asyncio.to_thread(_kept, folder, query):
        yield piece
    while query.follow:
        if len(data) < _PIECE // 2:
            await asyncio.sleep(_LOOK_SECONDS)
        data, end = await asyncio.to_thread(_newer, folder / NAME, end)
        lines = b"".join(_matching(data.splitlines(keepends=True), query))
        if lines:
            yield lines


def _kept(folder: Path, query: LogQuery) -> list[bytes]:
    """Return the content of the files, in pieces."""
    lines: Iterator[bytes] = (line for path in files(folder) for line in _matching(_lines(path), query))
    if query.tail is not None:
        lines = iter(deque(lines, query.tail))
    pieces: list[bytes] = []
    piece: list[bytes] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size > _PIECE:
            pieces.append(b"".join(piece))
            piece, size = [], 0
    return [*pieces, b"".join(piece)] if piece else pieces


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except FileNotFoundError:
        # It was rotated in the meantime.
        return


def _matching(lines: Iterator[bytes] | list[bytes], query: LogQuery) -> Iterator[bytes]:
    pattern = re.compile(query.grep.encode()) if query.grep else None
    since = datetime.fromtimestamp(query.since, UTC).isoformat(timespec="milliseconds").encode() if query.since else b""
    for line in lines:
        if since:
            match = _TIME.match(line)
            # ISO times of the same form compare correctly as text.
            if match is None or match[1] < since[: len(match[1]) - 1]:
                continue
        if pattern is None or pattern.search(line):
            yield line


def _end(path: Path) -> tuple[int, int]:
    """Return the inode and the size of the current file."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_size


def _newer(path: Path, before: tuple[int, int]) -> tuple[bytes, tuple[int, int]]:
    """Return whole lines written since `before`, at most a piece, and the position after them.

    `before` is an inode and an offset; inode 0 means the start of the current file. A rotated file is read to its end before the
    next one.
    """
    inode, start = before
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if inode in (0, status.st_ino):
                start = start if inode and start <= status.st_size else 0
                file.seek(start)
                chunk = file.read(_PIECE)
                whole = chunk[: chunk.rfind(b"\n") + 1]
                return whole, (status.st_ino, start + len(whole))
    except FileNotFoundError:
        # It was rotated, and its successor does not exist yet.
        pass
    return _rotated(path, inode, start) if inode else (b"", (0, 0))


def _rotated(path: Path, inode: int, start: int) -> tuple[bytes, tuple[int, int]]:
    """Return a piece of the rotated file with this inode, and the position after it; at its end, the start of the next file."""
    # Rotation only increases the number of a file, so a file renamed meanwhile is found in this order.
    for number in range(1, FILES):
        try:
            with numbered(path, number).open("rb") as file:
                if os.fstat(file.fileno()).st_ino == inode:
                    file.seek(start)
                    chunk = file.read(_PIECE)
                    # A file may end without a line break.
                    piece = chunk[: chunk.rfind(b"\n") + 1] or chunk
                    return piece, (inode, start + len(piece)) if piece else (_end(numbered(path, number - 1))[0], 0)
        except FileNotFoundError:
            continue
    return b"", (0, 0)
