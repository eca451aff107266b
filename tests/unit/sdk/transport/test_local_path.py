"""The locations of the home and the socket."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from other_user import STRANGER, do_as, needs_root, public_folder

from fairway.errors import UnavailableError
from fairway.sdk.transport import local_path


def test_the_home_is_what_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAIRWAY_HOME", str(tmp_path / "a" / ".." / "b"))
    assert local_path.find_home() == str(tmp_path / "b")


def test_the_home_is_in_the_state_folder_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRWAY_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert local_path.find_home() == "/state/fairway"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert local_path.find_home() == "/home/ada/.local/state/fairway"


def test_a_socket_is_short_and_one_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    deep = str(tmp_path / ("x" * 200))
    assert len(local_path.find_socket(deep)) < 100
    assert local_path.find_socket(deep) != local_path.find_socket(deep + "y")


def test_a_link_to_a_home_is_the_same_home(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert local_path.find_socket(str(tmp_path / "link")) == local_path.find_socket(str(tmp_path / "real"))


def test_without_a_runtime_folder_there_is_one_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert local_path.find_runtime_folder() == f"/tmp/fairway-{os.getuid()}"


@needs_root
@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_a_runtime_folder_that_another_user_took_is_left_to_them(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with public_folder() as public:
        monkeypatch.setattr(local_path, "_SHARED", str(public))
        usual = public / f"fairway-{os.getuid()}"
        assert local_path.find_runtime_folder() == str(usual)
        makers = {"folder": usual.mkdir, "file": usual.touch, "link": lambda: usual.symlink_to("/root")}
        do_as(STRANGER, makers[kind])
        assert local_path.find_runtime_folder() == os.path.expanduser("~/.fairway-run")


def test_a_runtime_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o755)
    with pytest.raises(UnavailableError, match="other users can access"):
        local_path.make_runtime_folder(str(folder))


def test_a_runtime_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "runtime").symlink_to("elsewhere")
    with pytest.raises(UnavailableError, match="other users can access"):
        local_path.make_runtime_folder(str(tmp_path / "runtime"))


def test_the_runtime_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    local_path.make_runtime_folder(str(tmp_path / "runtime"))
    local_path.make_runtime_folder(str(tmp_path / "runtime"))
    assert (tmp_path / "runtime").stat().st_mode & 0o777 == 0o700
