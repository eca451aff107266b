"""A device is held by one home, across all users, with this version and earlier ones."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_user import NEIGHBOUR, STRANGER, acting_as, do_as, needs_root, public_folder

from fairway.engines.local.device_lock import DeviceLocks
from fairway.engines.local.file_lock import is_held, release, try_lock
from fairway.engines.local.machine_folder import MachineFolder


@pytest.fixture
def public() -> Iterator[Path]:
    with public_folder() as folder:
        yield folder


def locks_of(public: Path, home: str = "home") -> DeviceLocks:
    return DeviceLocks(MachineFolder(public / "machine"), home)


def earlier_lock(public: Path, home: str, *, shared: bool = False) -> int:
    """Take the lock as a task of an earlier version does: one file for all users."""
    (public / "machine").mkdir(exist_ok=True)
    (public / "machine").chmod(0o1777)
    descriptor = os.open(public / "machine" / "device-GPU-1", os.O_RDWR | os.O_CREAT, 0o666)
    os.fchmod(descriptor, 0o666)
    os.pwrite(descriptor, json.dumps({"home": home, "user": "old"}).encode().ljust(256), 0)
    assert try_lock(descriptor, shared=shared)
    return descriptor


def test_a_device_is_held_by_one_home(tmp_path: Path) -> None:
    mine, other = locks_of(tmp_path, "home-a"), locks_of(tmp_path, "home-b")
    claim = mine.take("GPU-1", shared=False)
    assert claim is not None
    assert other.take("GPU-1", shared=False) is None
    assert other.take("GPU-1", shared=True) is None
    assert mine.take("GPU-1", shared=True) is None
    assert mine.foreign_holder("GPU-1") == ""
    assert "another fairway home" in other.foreign_holder("GPU-1")
    release(*claim)
    assert other.foreign_holder("GPU-1") == ""
    again = other.take("GPU-1", shared=False)
    assert again is not None
    assert "another fairway home" in mine.foreign_holder("GPU-1")
    release(*again)


def test_shares_of_a_device_belong_to_one_home(tmp_path: Path) -> None:
    mine, other = locks_of(tmp_path, "home-a"), locks_of(tmp_path, "home-b")
    shares = [mine.take("GPU-1", shared=True) for _ in range(3)]
    assert None not in shares
    assert mine.is_shared("GPU-1")
    assert not other.is_shared("GPU-1")
    assert other.take("GPU-1", shared=True) is None
    assert mine.take("GPU-1", shared=False) is None
    for share in shares:
        assert share is not None
        release(*share)
    assert not mine.is_shared("GPU-1")
    taken = other.take("GPU-1", shared=True)
    assert taken is not None
    release(*taken)


def test_a_device_is_held_as_long_as_a_copy_of_its_lock_is_open(tmp_path: Path) -> None:
    mine = locks_of(tmp_path)
    claim = mine.take("GPU-1", shared=False)
    assert claim is not None
    copies = [os.dup(descriptor) for descriptor in claim]
    release(*claim)
    assert mine.take("GPU-1", shared=False) is None
    release(*copies)
    again = mine.take("GPU-1", shared=False)
    assert again is not None
    release(*again)


def test_files_of_ended_claims_are_removed(tmp_path: Path) -> None:
    mine = locks_of(tmp_path)
    for _ in range(20):
        claim = mine.take("GPU-1", shared=False)
        assert claim is not None
        release(*claim)
    mine.foreign_holder("GPU-1")
    assert list((tmp_path / f"machine-{os.getuid()}").iterdir()) == []


def test_an_odd_device_name_stays_in_the_folder(tmp_path: Path) -> None:
    held = locks_of(tmp_path).take("../../evil/GPU 1", shared=False)
    assert held is not None
    (name,) = os.listdir(tmp_path / f"machine-{os.getuid()}")
    assert name.startswith("device-.._.._evil_GPU_1@")
    release(*held)


@needs_root
def test_users_exclude_each_other_and_the_owner_of_the_file_is_named(public: Path) -> None:
    def take() -> None:
        assert locks_of(public, "home").take("GPU-1", shared=False) is not None
        assert locks_of(public, "home").take("GPU-2", shared=True) is not None

    mine = locks_of(public, "home")
    with acting_as(STRANGER, take):
        for uuid in ("GPU-1", "GPU-2"):
            assert mine.take(uuid, shared=False) is None
            assert mine.take(uuid, shared=True) is None, "a home of the same name of another user is another home"
            assert "user nobody" in mine.foreign_holder(uuid) or str(STRANGER) in mine.foreign_holder(uuid)
        held = mine.take("GPU-3", shared=False)
        assert held is not None

        def check() -> None:
            assert locks_of(public, "home").take("GPU-3", shared=False) is None
            assert "root" in locks_of(public, "home").foreign_holder("GPU-3")

        do_as(STRANGER, check)
        release(*held)
    claim = mine.take("GPU-1", shared=False)
    assert claim is not None
    release(*claim)


@needs_root
def test_hostile_files_cost_nothing(public: Path) -> None:
    """Everything that an unprivileged user can place where locks are searched, in both layouts."""

    def plant() -> None:
        (public / "machine").mkdir()
        (public / "machine").chmod(0o1777)
        os.mkfifo(public / "machine" / "device-GPU-1")
        (public / "machine" / "device-GPU-2").mkdir()
        (public / "machine" / "device-GPU-3").symlink_to("/dev/zero")
        (public / "machine" / "device-GPU-4").touch(mode=0o000)
        own = MachineFolder(public / "machine").own()
        os.mkfifo(own / "device-GPU-1@aa")
        (own / "device-GPU-2@aa").mkdir()
        (own / "device-GPU-3@aa").symlink_to("/dev/tty")
        (own / "device-GPU-4@aa").write_text("[" * 100_000)

    do_as(STRANGER, plant)

    def check() -> None:
        folder = MachineFolder(public / "machine")
        mine = DeviceLocks(folder, "home")
        began = time.monotonic()
        for number in range(1, 5):
            uuid = f"GPU-{number}"
            assert mine.foreign_holder(uuid) == ""
            claim = mine.take(uuid, shared=False)
            assert claim is not None
            assert mine.take(uuid, shared=False) is None, "and it still excludes"
            release(*claim)
        assert time.monotonic() - began < 10
        for name in ("device-GPU-1 ", "device-GPU-3 ", "device-GPU-1@aa", "device-GPU-2@aa", "device-GPU-3@aa"):
            assert any(f"/{name}" in words for words in folder.warnings), name

    do_as(NEIGHBOUR, check)


@needs_root
def test_a_claim_in_the_folder_of_another_user_is_nobodys(public: Path) -> None:
    """Files of others in a user's world-writable folder must neither count as that user's nor delay anything."""

    def open_up() -> None:
        MachineFolder(public / "machine").own().chmod(0o777)

    def plant() -> None:
        descriptor = os.open(public / f"machine-{STRANGER}" / "device-GPU-1@aa", os.O_RDWR | os.O_CREAT, 0o644)
        assert try_lock(descriptor)

    do_as(STRANGER, open_up)
    with acting_as(NEIGHBOUR, plant):
        mine = locks_of(public)
        assert mine.foreign_holder("GPU-1") == ""
        claim = mine.take("GPU-1", shared=False)
        assert claim is not None
        release(*claim)


@needs_root
def test_shared_locks_of_a_reader_hold_nothing(public: Path) -> None:
    """Every user can open the file of a claim for reading, and take a shared lock on it after its holder has exited."""
    mine = locks_of(public)
    claim = mine.take("GPU-1", shared=False)
    assert claim is not None
    (path,) = (public / "machine-0").iterdir()

    def lock() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        request = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        with pytest.raises(BlockingIOError):
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 1, 0, 0))
        release(*claim)

    with acting_as(STRANGER, lock):
        release(*claim)
        again = mine.take("GPU-1", shared=False)
        assert again is not None
        release(*again)


@pytest.mark.parametrize("shared", [False, True])
def test_tasks_of_an_earlier_version_exclude_and_are_excluded(tmp_path: Path, shared: bool) -> None:
    old = earlier_lock(tmp_path, "home-b", shared=shared)
    mine = locks_of(tmp_path, "home-a")
    began = time.monotonic()
    assert mine.take("GPU-1", shared=False) is None
    assert mine.take("GPU-1", shared=True) is None
    assert time.monotonic() - began < 10
    assert "another fairway home" in mine.foreign_holder("GPU-1")
    same = locks_of(tmp_path, "home-b")
    assert same.foreign_holder("GPU-1") == ""
    share = same.take("GPU-1", shared=True)
    assert (share is not None) is shared
    assert same.is_shared("GPU-1") is shared
    if share is not None:
        release(*share)
    os.close(old)
    claim = mine.take("GPU-1", shared=False)
    assert claim is not None
    again = os.open(tmp_path / "machine" / "device-GPU-1", os.O_RDWR)
    assert not try_lock(again), "a daemon of an earlier version sees it"
    os.close(again)
    release(*claim)


CONTEST = """
import sys, time
from pathlib import Path
from fairway.engines.local.device_lock import DeviceLocks
from fairway.engines.local.file_lock import release
from fairway.engines.local.machine_folder import MachineFolder
mine = DeviceLocks(MachineFolder(Path(sys.argv[1]) / "machine"), sys.argv[2])
witness = Path(sys.argv[1]) / "witness"
wins, deadline = 0, time.monotonic() + 60
while wins < 15 and time.monotonic() < deadline:
    held = mine.take("GPU-1", shared=False)
    if held is not None:
        witness.touch(exist_ok=False)
        time.sleep(0.001)
        witness.unlink()
        release(*held)
        wins += 1
sys.exit(0 if wins == 15 else 3)
"""


def test_contenders_never_hold_a_device_together_and_each_gets_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CONTEST, str(tmp_path)]
    contenders = [subprocess.Popen([*command, f"home-{number}"], stderr=subprocess.PIPE) for number in range(4)]
    ends = [(contender.communicate()[1].decode()[-500:], contender.returncode) for contender in contenders]
    assert [code for _, code in ends] == [0] * 4, ends


def test_nothing_waits_for_a_pipe_in_place_of_an_attempts_lock(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    failed: list[str] = []

    def look() -> None:

        with pytest.raises(OSError, match="not a regular file"):
            is_held(tmp_path / "lock")
        failed.append("raised")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(10)
    assert failed == ["raised"]
