"""A lock is held as long as a copy of its descriptor is open."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fairway.engines.local.file_lock import is_held, release, take, try_lock


def test_a_lock_is_taken_once_and_seen_without_taking_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    lock = take(path)
    assert lock is not None
    assert is_held(path)
    assert take(path) is None
    release(lock)
    assert not is_held(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_lock_lives_as_long_as_any_copy_of_its_descriptor(tmp_path: Path) -> None:
    lock = take(tmp_path / "lock")
    assert lock is not None
    copy = os.dup(lock)
    release(lock)
    assert is_held(tmp_path / "lock")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(copy)
    assert is_held(tmp_path / "lock")
    os.close(write)
    os.waitpid(pid, 0)
    os.close(read)
    assert not is_held(tmp_path / "lock")


def test_opening_and_closing_a_lock_file_takes_nothing_away(tmp_path: Path) -> None:
    lock = take(tmp_path / "lock")
    assert lock is not None
    (tmp_path / "lock").read_bytes()
    assert is_held(tmp_path / "lock")
    release(lock)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        take(tmp_path / "lock")


def test_bytes_of_one_file_are_locks_of_their_own(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "ports", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first, 5)
    assert not try_lock(second, 5)
    assert try_lock(second, 6)
    assert is_held(tmp_path / "ports", 5)
    assert not is_held(tmp_path / "ports", 7)
    os.close(first)
    os.close(second)
