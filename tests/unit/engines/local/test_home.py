"""The layout of a home."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fairway.engines.local.home import EngineHome, file_system_of, make_private
from fairway.errors import BugError, RefusedError
from fairway.state.job import JobKey
from fairway.state.task import TaskKey

MOUNTS = r"""22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:30 / /home rw - nfs4 server:/home rw
31 22 0:31 / /mnt/my\040share rw - fuse.sshfs host:/ rw
32 30 8:2 / /home/ana/local rw - xfs /dev/sdb1 rw
33 22 0:33 / /data rw - ext4 /dev/sdc rw
34 22 0:34 / /data rw - lustre fs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/tmp", "ext4"),
        ("/home/ana/.local", "nfs4"),
        ("/homework", "ext4"),
        ("/mnt/my share/x", "fuse.sshfs"),
        ("/home/ana/local/x", "xfs"),
        ("/data/x", "lustre"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind


def test_a_home_on_the_network_is_refused_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairway.engines.local.home.file_system_of", lambda _path: "nfs4")
    with pytest.raises(RefusedError, match="network file system") as caught:
        EngineHome.open(tmp_path / "home")
    assert "FAIRWAY_HOME" in caught.value.fix
    assert not (tmp_path / "home").exists()


def test_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = EngineHome.open(tmp_path / "home")
        run = home.make_shared_parts(JobKey("default", "mnist-1"))
        key = TaskKey("default", "mnist-1", "worker", 0, 2)
        assert home.make_attempt(key)
        assert not home.make_attempt(key), "it is there already"
    finally:
        os.umask(before)
    assert run == home.path / "jobs/default/mnist-1"
    assert (run / "attempts/worker-0-2").is_dir()
    for folder, _, _ in os.walk(home.path):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700, folder


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0b"])
def test_no_name_leaves_the_home(tmp_path: Path, name: str) -> None:
    home = EngineHome.open(tmp_path / "home")
    with pytest.raises(BugError):
        home.job(JobKey("default", name))
    with pytest.raises(BugError):
        home.job(JobKey(name, "mnist-1"))


def test_the_attempts_of_a_run_are_found(tmp_path: Path) -> None:
    home = EngineHome.open(tmp_path / "home")
    key = JobKey("default", "mnist-1")
    assert home.attempts_of(key) == []
    wanted = [TaskKey("default", "mnist-1", role, 10, 3) for role in ("data-loader", "worker")]
    home.make_shared_parts(key)
    for each in wanted:
        make_private(home.attempt(each))
    (home.job(key) / "attempts" / "odd").mkdir()
    assert home.attempts_of(key) == wanted


def test_a_forgotten_run_is_gone_whatever_it_left(tmp_path: Path) -> None:
    home = EngineHome.open(tmp_path / "home")
    key = JobKey("default", "mnist-1")
    run = home.make_shared_parts(key)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (run / "shared/link").symlink_to(outside)
    closed = run / "shared/closed/deep"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    closed.chmod(0)
    closed.parent.chmod(0o500)
    home.forget_job(key)
    home.forget_job(key)
    assert not run.exists()
    assert list((home.path / "trash").iterdir()) == []
    assert (outside / "precious").exists()


def test_a_run_folder_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    home = EngineHome.open(tmp_path / "home")
    (home.path / "jobs/default").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (home.path / "jobs/default/mnist-1").symlink_to(tmp_path / "elsewhere")
    home.forget_job(JobKey("default", "mnist-1"))
    assert (tmp_path / "elsewhere").is_dir()


def test_trash_of_a_crash_is_removed(tmp_path: Path) -> None:
    home = EngineHome.open(tmp_path / "home")
    (home.path / "trash/default.mnist-1.ab/code").mkdir(parents=True)
    home.empty_trash()
    assert list((home.path / "trash").iterdir()) == []
