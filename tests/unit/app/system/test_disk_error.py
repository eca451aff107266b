"""Errors for a folder that cannot be written: they name the mount, the owner, the free space, and the fix."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fairway.app.system import disk_error

MOUNTS = "\n".join(
    [
        "/dev/sda1 / ext4 rw 0 0",
        "/dev/sdb1 /data ext4 ro 0 0",
        "/dev/sdc1 /data/my\\040runs ext4 rw 0 0",
        "broken",
    ]
)


def test_the_mount_of_a_path_is_the_nearest_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_error, "nearest", lambda path: path)
    assert disk_error.mount_of("/data/my runs/home", MOUNTS) == "/data/my runs"
    assert disk_error.mount_of("/data/mine", MOUNTS) == "/data"
    assert disk_error.mount_of("/database", MOUNTS) == "/"


def test_a_full_disk_names_the_mount_and_the_room(tmp_path: Path) -> None:
    told = disk_error.explain(OSError(errno.ENOSPC, "No space left on device"), str(tmp_path / "home" / "fairway.db"))
    assert told is not None
    what, fix = told
    assert disk_error.mount_of(str(tmp_path)) in what
    assert "MiB" in what or "files" in what
    assert "remove files below" in fix
    assert "FAIRWAY_HOME" not in fix, "another home would be another place, not more room"


def test_a_quota_is_told_as_one(tmp_path: Path) -> None:
    what, fix = disk_error.explain(OSError(errno.EDQUOT, "Disk quota exceeded"), str(tmp_path)) or ("", "")
    assert "quota" in what
    assert "quota" in fix


def test_a_read_only_mount_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.statvfs(tmp_path)
    flagged = os.statvfs_result((*found[:8], found.f_flag | os.ST_RDONLY, found[9]))
    monkeypatch.setattr(os, "statvfs", lambda _path: flagged)
    what, fix = disk_error.explain(OSError(errno.EROFS, "Read-only file system"), str(tmp_path)) or ("", "")
    assert "is read-only" in what
    assert "remount,rw" in fix


def test_a_folder_of_another_user_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    what, fix = disk_error.explain(OSError(errno.EACCES, "Permission denied"), str(tmp_path / "home")) or ("", "")
    assert str(tmp_path) in what
    assert "belongs to" in what
    assert "uid 54321" in what
    assert "chown" in fix


def test_a_folder_of_ones_own_that_is_closed_names_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    what, fix = disk_error.explain(OSError(errno.EACCES, "Permission denied"), str(tmp_path / "home")) or ("", "")
    tmp_path.chmod(0o700)
    assert "0500" in what
    assert "chmod" in fix


def test_other_errors_are_left_to_others(tmp_path: Path) -> None:
    assert disk_error.explain(OSError(errno.ENOENT, "No such file"), str(tmp_path)) is None
