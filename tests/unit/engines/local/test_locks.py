"""Locks live as long as a copy of their descriptor."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fairway.engines.local.locks import DeviceLocks, MachineFolder, is_held, release, take, try_lock
from fairway.errors import RefusedError


def test_a_lock_is_taken_once_and_seen_without_taking_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    held = take(path)
    assert held is not None
    assert is_held(path)
    assert take(path) is None
    release(held)
    assert not is_held(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_lock_lives_as_long_as_any_copy_of_its_descriptor(tmp_path: Path) -> None:
    held = take(tmp_path / "lock")
    assert held is not None
    copy = os.dup(held)
    release(held)
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
    held = take(tmp_path / "lock")
    assert held is not None
    (tmp_path / "lock").read_bytes()
    assert is_held(tmp_path / "lock")
    release(held)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        take(tmp_path / "lock")


def test_the_machine_folder_is_for_everybody(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    os.close(folder.open("ports"))
    os.close(folder.open("ports"))
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder.path / "ports").stat().st_mode) == 0o666


def test_a_file_in_place_of_the_machine_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "machine").touch()
    with pytest.raises(RefusedError, match="is no folder"):
        MachineFolder(tmp_path / "machine").open("ports")


def test_old_lock_files_are_kept_fresh(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    os.close(folder.open("ports"))
    os.utime(folder.path / "ports", (1, 1))
    folder.refresh()
    assert (folder.path / "ports").stat().st_mtime > 1


def test_a_device_is_held_by_one_home(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    mine, other = DeviceLocks(folder, "home-a"), DeviceLocks(folder, "home-b")
    held = mine.take("GPU-1", shared=False)
    assert held is not None
    assert other.take("GPU-1", shared=False) is None
    assert other.take("GPU-1", shared=True) is None
    assert mine.take("GPU-1", shared=True) is None
    assert mine.foreign_holder("GPU-1") == ""
    assert "another fairway home" in other.foreign_holder("GPU-1")
    release(held)
    assert other.foreign_holder("GPU-1") == ""
    again = other.take("GPU-1", shared=False)
    assert again is not None
    assert "another fairway home" in mine.foreign_holder("GPU-1")
    release(again)


def test_shares_of_a_device_belong_to_one_home(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    mine, other = DeviceLocks(folder, "home-a"), DeviceLocks(folder, "home-b")
    shares = [mine.take("GPU-1", shared=True) for _ in range(3)]
    assert None not in shares
    assert other.take("GPU-1", shared=True) is None
    assert mine.take("GPU-1", shared=False) is None
    for share in shares:
        assert share is not None
        release(share)
    taken = other.take("GPU-1", shared=True)
    assert taken is not None
    release(taken)


def test_an_odd_device_name_stays_in_the_folder(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    held = DeviceLocks(folder, "h").take("../../evil/GPU 1", shared=False)
    assert held is not None
    assert [path.name for path in folder.path.iterdir()] == ["device-.._.._evil_GPU_1"]
    release(held)


def test_bytes_of_one_file_are_locks_of_their_own(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "ports", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first, 5)
    assert not try_lock(second, 5)
    assert try_lock(second, 6)
    assert is_held(tmp_path / "ports", 5)
    assert not is_held(tmp_path / "ports", 7)
    os.close(first)
    os.close(second)
