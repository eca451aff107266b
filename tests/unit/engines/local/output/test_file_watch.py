"""Waiting for files, with inotify and without."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from fairway.engines.local.output import file_watch
from fairway.engines.local.output.file_watch import FileWatcher


@pytest.fixture(params=[True, False], ids=["inotify", "polling"])
def watcher(request: pytest.FixtureRequest) -> FileWatcher:
    return FileWatcher(inotify=request.param)


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("x")


async def test_a_file_that_grows_and_a_folder_that_fills(watcher: FileWatcher, tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path)
    watching = watcher.subscribe()
    watching.watch(path)
    watching.watch(tmp_path)
    append(path)
    assert path in await watching.wait(10)
    (tmp_path / "other").touch()
    assert tmp_path in await watching.wait(10)
    watching.close()


async def test_time_passes_when_nothing_happens(watcher: FileWatcher, tmp_path: Path) -> None:
    watching = watcher.subscribe()
    watching.watch(tmp_path)
    assert await watching.wait(0.02) == set()
    watching.close()


async def test_somebody_else_may_wake_it(watcher: FileWatcher, tmp_path: Path) -> None:
    watching = watcher.subscribe()
    watching.watch(tmp_path)
    asyncio.get_running_loop().call_soon(watching.touch)
    async with asyncio.timeout(10):
        assert await watching.wait(60) == set()
    watching.close()


async def test_each_is_told_of_its_own(watcher: FileWatcher, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        append(path)
    first, second = watcher.subscribe(), watcher.subscribe()
    first.watch(paths[0])
    second.watch(paths[1])
    second.watch(paths[0])
    append(paths[0])
    assert await first.wait(10) == {paths[0]}
    assert await second.wait(10) == {paths[0]}
    second.unwatch(paths[0])
    append(paths[0])
    append(paths[1])
    assert await first.wait(10) == {paths[0]}
    assert await second.wait(10) == {paths[1]}
    first.close()
    append(paths[1])
    assert await second.wait(10) == {paths[1]}
    second.close()


async def test_a_file_that_was_replaced_can_be_watched_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path)
    watching = FileWatcher(inotify=True).subscribe()
    watching.watch(path)
    path.unlink()
    assert path in await watching.wait(10)
    append(path)
    watching.watch(path)
    append(path)
    assert path in await watching.wait(10)
    watching.close()


async def test_handles_are_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watcher = FileWatcher(inotify=True)
    for _ in range(3):
        first, second = watcher.subscribe(), watcher.subscribe()
        first.watch(tmp_path)
        first.close()
        second.close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_where_the_kernel_has_no_more_the_files_are_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> bool:
        return False

    path = tmp_path / "log"
    append(path)
    monkeypatch.setattr(file_watch._Inotify, "add", refused)
    watching = FileWatcher(inotify=True).subscribe()
    watching.watch(path)
    append(path)
    assert await watching.wait(10) == {path}
    watching.close()
