"""Whatever other users put into the shared folder, at most the one file is lost."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_user import NEIGHBOUR, STRANGER, acting_as, do_as, needs_root, public_folder

from fairway.engines.local.machine_folder import MachineFolder
from fairway.errors import RefusedError


@pytest.fixture
def public() -> Iterator[Path]:
    with public_folder() as folder:
        yield folder


def test_a_user_has_a_folder_that_the_others_read(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    own = folder.own()
    assert own == tmp_path / f"machine-{os.getuid()}"
    assert stat.S_IMODE(own.stat().st_mode) == 0o755
    assert folder.own() == own
    assert MachineFolder(tmp_path / "machine").own() == own
    assert not (tmp_path / "machine").exists()


def test_a_folder_that_is_gone_is_made_again(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    folder.own().rmdir()
    assert folder.own().is_dir()


@needs_root
def test_a_folder_that_an_administrator_made_is_used(public: Path) -> None:
    (public / "machine").mkdir()
    (public / "machine").chmod(0o1777)

    def check() -> None:
        assert MachineFolder(public / "machine").own() == public / "machine" / str(STRANGER)

    do_as(STRANGER, check)


@needs_root
@pytest.mark.parametrize("kind", ["folder", "file", "pipe", "link"])
def test_a_name_that_another_user_took_does_not_matter(public: Path, kind: str) -> None:
    plain = public / f"machine-{NEIGHBOUR}"
    makers = {"folder": plain.mkdir, "file": plain.touch, "pipe": lambda: os.mkfifo(plain), "link": lambda: plain.symlink_to("/")}
    do_as(STRANGER, makers[kind])

    def check() -> None:
        folder = MachineFolder(public / "machine")
        own = folder.own()
        assert own != plain
        assert own.name.startswith(f"machine-{NEIGHBOUR}-")
        assert own.stat().st_uid == NEIGHBOUR
        assert MachineFolder(public / "machine").own() == own, "found again"
        assert any(str(plain) in words for words in folder.warnings)

    do_as(NEIGHBOUR, check)


@needs_root
@pytest.mark.parametrize("mode", [0o000, 0o700, 0o777])
def test_a_shared_folder_of_another_user_is_not_relied_on(public: Path, mode: int) -> None:
    def make() -> None:
        (public / "machine").mkdir()
        (public / "machine").chmod(mode)

    do_as(STRANGER, make)

    def check() -> None:
        assert MachineFolder(public / "machine").own() == public / f"machine-{NEIGHBOUR}"

    do_as(NEIGHBOUR, check)


@needs_root
def test_no_user_can_change_what_is_in_the_folder_of_another(public: Path) -> None:
    def lock() -> None:
        folder = MachineFolder(public / "machine")
        descriptor, path = folder.create()
        os.write(descriptor, b"mine")
        folder.publish(descriptor, path, "ports")

    do_as(NEIGHBOUR, lock)
    own = public / f"machine-{NEIGHBOUR}"

    def attack() -> None:
        attempts = [
            lambda: (own / "ports").unlink(),
            lambda: (own / "ports").write_text("yours"),
            lambda: os.rename(own, public / "elsewhere"),
            lambda: os.mkfifo(own / "device-1"),
            lambda: os.truncate(own / "ports", 0),
            lambda: own.chmod(0o777),
            own.rmdir,
        ]
        for attempt in attempts:
            with pytest.raises(PermissionError):
                attempt()

    do_as(STRANGER, attack)
    assert (own / "ports").read_text() == "mine"


@needs_root
def test_a_flood_of_folders_and_files_is_bounded(public: Path) -> None:
    def flood() -> None:
        for number in range(50):
            place = public / f"machine-{STRANGER}-{number:08x}"
            place.mkdir()
        for number in range(3000):
            (public / f"machine-{STRANGER}-{0:08x}" / f"device-{number}").touch()

    do_as(STRANGER, flood)
    folder = MachineFolder(public / "machine")
    with folder.folders() as folders:
        assert len([each for each in folders if each.user == STRANGER]) <= 4
        assert all(len(each.names("device-")) <= 2048 for each in folders)
    assert any("more than" in words for words in folder.warnings)


@needs_root
def test_folders_in_the_name_of_another_user_do_not_hide_theirs(public: Path) -> None:
    def flood() -> None:
        for number in range(200):
            (public / f"machine-{NEIGHBOUR}-{number:08x}").mkdir()

    do_as(STRANGER, flood)
    do_as(NEIGHBOUR, lambda: MachineFolder(public / "machine").own())
    folder = MachineFolder(public / "machine")
    with folder.folders() as folders:
        assert [each.user for each in folders] == [NEIGHBOUR]
    assert 0 < len(folder.warnings) <= 20


@needs_root
def test_a_file_with_a_lease_does_not_delay(public: Path) -> None:
    """The kernel makes an open wait for the holder of a lease, unless it is non-blocking."""

    def lease() -> None:
        folder = MachineFolder(public / "machine")
        descriptor, path = folder.create()
        folder.publish(descriptor, path, "ports")
        os.close(descriptor)
        again = os.open(path.with_name("ports"), os.O_RDWR)
        fcntl.fcntl(again, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    with acting_as(STRANGER, lease):
        folder = MachineFolder(public / "machine")
        began = time.monotonic()
        with folder.folders() as folders:
            (theirs,) = [each for each in folders if each.user == STRANGER]
            assert folder.open_in(theirs, "ports") is None
        assert time.monotonic() - began < 10
        assert any("ports" in words for words in folder.warnings)


def test_a_machine_folder_where_none_can_be_made_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RefusedError, match="FAIRWAY_MACHINE_DIR"):
        MachineFolder(tmp_path / "file" / "machine").own()


def test_what_a_crash_left_unpublished_goes_when_it_is_old(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    (old, path), (young, other) = folder.create(), folder.create()
    os.utime(path, (1, 1))
    folder.refresh()
    assert list(folder.own().iterdir()) == [other]
    os.close(old)
    os.close(young)


def test_refreshing_touches_own_files_and_follows_no_link(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    (tmp_path / "elsewhere").touch()
    os.utime(tmp_path / "elsewhere", (1, 1))
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "ports").touch()
    os.utime(tmp_path / "machine" / "ports", (1, 1))
    (tmp_path / "machine" / "link").symlink_to(tmp_path / "elsewhere")
    (folder.own() / "ports").touch()
    (folder.own() / "link").symlink_to(tmp_path / "elsewhere")
    os.utime(folder.own() / "ports", (1, 1))
    folder.refresh()
    assert (folder.own() / "ports").stat().st_mtime > 1
    assert (tmp_path / "machine" / "ports").stat().st_mtime > 1
    assert (tmp_path / "elsewhere").stat().st_mtime == 1
