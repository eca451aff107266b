"""Scanning a folder, and content that cannot be stored."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fairway.errors import RefusedError
from fairway.registry.folder_scan import scan
from fairway.registry.manifest import ManifestEntry


def test_files_links_and_empty_folders(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "src" / "link").symlink_to("a.py")
    (tmp_path / "alias").symlink_to("src")
    found = scan(tmp_path, ignoring=True)
    assert set(found.files) == {"src/a.py"}
    assert sorted(found.others) == [
        ManifestEntry("alias", 0o777, symlink="src"),
        ManifestEntry("empty/", 0o755),
        ManifestEntry("src/link", 0o777, symlink="a.py"),
    ]


def test_an_absolute_link_to_the_inside_is_made_relative(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "a").touch()
    (tmp_path / "deep" / "er" / "link").symlink_to(tmp_path / "a")
    assert scan(tmp_path, ignoring=True).others == [ManifestEntry("deep/er/link", 0o777, symlink="../../a")]


def test_links_that_leave_are_refused_by_name(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside").touch()
    (inside / "up").symlink_to("../outside")
    (inside / "far").symlink_to("/etc/passwd")
    (inside / "hop").symlink_to("up")
    with pytest.raises(RefusedError) as caught:
        scan(inside, ignoring=True)
    assert all(f"{name} is a link to" in caught.value.message for name in ("up", "far", "hop"))
    assert ".fairwayignore" in caught.value.fix


def test_links_that_lead_out_together_or_in_a_circle_are_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "top").symlink_to("../..")
    (folder / "up").symlink_to("a/b/top/..")
    with pytest.raises(RefusedError, match="up"):
        scan(folder, ignoring=False)
    (folder / "up").unlink()
    (folder / "one").symlink_to("two")
    (folder / "two").symlink_to("one")
    with pytest.raises(RefusedError, match="cycle"):
        scan(folder, ignoring=False)


def test_what_is_ignored_may_be_anything(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".fairwayignore").write_text("data\npipe\n")
    assert set(scan(tmp_path, ignoring=True).files) == {".fairwayignore"}


def test_pipes_and_sockets_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("door")
        with pytest.raises(RefusedError, match="door is a socket; pipe is a pipe"):
            scan(tmp_path, ignoring=True)


def test_many_refusals_are_counted(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"link{number}").symlink_to("/etc/passwd")
    with pytest.raises(RefusedError, match="and 4 more"):
        scan(tmp_path, ignoring=False)


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "fairway.db"])
def test_an_environment_or_a_home_is_left_out_whatever_its_name(tmp_path: Path, mark: str) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / mark).touch()
    (tmp_path / "inner" / "secret").touch()
    (tmp_path / "a.py").touch()
    assert set(scan(tmp_path, ignoring=True).files) == {"a.py"}
    assert set(scan(tmp_path, ignoring=False).files) == {"a.py", f"inner/{mark}", "inner/secret"}


def test_the_largest_paths_are_named_by_what_lies_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    for name, size in (("data/a", 300), ("data/deep/b", 400), ("model.pt", 500), ("a.py", 5)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert scan(tmp_path, ignoring=True).largest() == [("data/", 700), ("model.pt", 500), ("a.py", 5)]
