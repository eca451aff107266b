"""Following the access log of a service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairway.api.stream import access_log
from fairway.api.stream.access_log import access_lines
from fairway.app.port.port import LogQuery
from fairway.serving.router.observe.access_log import NAME, numbered


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "_PIECE", 100)
    monkeypatch.setattr(access_log, "_LOOK_SECONDS", 0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / NAME).write_bytes(b"old\n")
    return tmp_path


def lines(begin: int, end: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(begin, end))


def append(folder: Path, data: bytes) -> None:
    with (folder / NAME).open("ab") as file:
        file.write(data)


def rotate(folder: Path) -> None:
    for number in (3, 2, 1, 0):
        if (path := numbered(folder / NAME, number)).exists():
            path.replace(numbered(folder / NAME, number + 1))


async def read_until(stream: AsyncIterator[bytes], last: bytes) -> bytes:
    data = b""
    async with asyncio.timeout(10):
        async for piece in stream:
            data += piece
            if data.endswith(last):
                break
    return data


async def follow(folder: Path) -> AsyncIterator[bytes]:
    """Begin to follow; the first line has been read."""
    stream = access_lines(folder, LogQuery(follow=True))
    assert await anext(stream) == b"old\n"
    return stream


async def test_a_rotated_file_is_read_to_its_end_before_the_new_one(folder: Path) -> None:
    stream = await follow(folder)
    append(folder, lines(0, 100))
    rotate(folder)
    append(folder, lines(100, 200))
    assert await read_until(stream, b"line 199\n") == lines(0, 200)


async def test_all_files_of_several_rotations_are_read_in_order(folder: Path) -> None:
    stream = await follow(folder)
    for begin in (0, 50, 100):
        append(folder, lines(begin, begin + 50))
        rotate(folder)
    append(folder, lines(150, 160))
    assert await read_until(stream, b"line 159\n") == lines(0, 160)


async def test_a_rotation_in_the_middle_of_reading_loses_nothing(folder: Path) -> None:
    stream = await follow(folder)
    append(folder, lines(0, 100))
    rotate(folder)
    first = await anext(stream)
    append(folder, lines(100, 150))
    rotate(folder)
    rest = await read_until(stream, b"line 149\n")
    append(folder, lines(150, 160))
    assert first + rest + await read_until(stream, b"line 159\n") == lines(0, 160)
