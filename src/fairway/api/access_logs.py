"""The access log of a service as text: one line of JSON per request, oldest first."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

from fairway.app.ports import LogQuery
from fairway.serving.router.observe.access_log import NAME, files

_LOOK_SECONDS = 0.5
"""Interval at which a followed log is read, in seconds."""
_PIECE = 1024 * 1024
_TIME = re.compile(rb'^\{"time":"([^"]{10,40})"')


async def access_lines(folder: Path, query: LogQuery) -> AsyncIterator[bytes]:
    """Yield the lines that match the query; with `follow`, until the reader disconnects."""
    end = _end(folder / NAME)
    for piece in await asyncio.to_thread(_kept, folder, query):
        yield piece
    while query.follow:
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
    """Return whole lines written since `before`, and the new end position. A new file is read from its start."""
    inode, size = _end(path)
    start = before[1] if inode == before[0] and size >= before[1] else 0
    data = b""
    if inode != before[0] and before[0]:
        data = _rest(path.with_name(f"{NAME}.1"), before)
    try:
        with path.open("rb") as file:
            file.seek(start)
            chunk = file.read(_PIECE)
    except FileNotFoundError:
        return data, (0, 0)
    whole = chunk[: chunk.rfind(b"\n") + 1]
    return data + whole, (inode, start + len(whole))


def _rest(path: Path, before: tuple[int, int]) -> bytes:
    """Return what was written to a file before it was renamed."""
    if _end(path)[0] != before[0]:
        return b""
    with path.open("rb") as file:
        file.seek(before[1])
        return file.read(_PIECE)
