"""Secrets: real files, their modes, and names that must not leave the folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairway.engines.local.secret import VALUE_LIMIT, FileSecrets
from fairway.errors import NotFoundError, UsageError


@pytest.fixture
def store(tmp_path: Path) -> FileSecrets:
    return FileSecrets(tmp_path / "secrets")


def test_what_was_put_is_revealed_and_named(store: FileSecrets) -> None:
    store.put("HF_TOKEN", "abc\ndé")
    store.put("A_KEY", "x")
    assert store.names() == ["A_KEY", "HF_TOKEN"]
    assert store.reveal(["HF_TOKEN"]) == {"HF_TOKEN": "abc\ndé"}


def test_putting_again_replaces(store: FileSecrets) -> None:
    store.put("KEY", "old")
    store.put("KEY", "new")
    assert store.reveal(["KEY"]) == {"KEY": "new"}


def test_files_are_for_the_owner_alone_whatever_the_umask(store: FileSecrets, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store.put("KEY", "v")
    finally:
        os.umask(before)
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "secrets" / "KEY").stat().st_mode & 0o777 == 0o600


def test_a_deleted_secret_is_gone(store: FileSecrets) -> None:
    store.put("KEY", "v")
    store.delete("KEY")
    assert store.names() == []
    with pytest.raises(NotFoundError, match="no secret KEY"):
        store.delete("KEY")


def test_every_missing_secret_is_named_at_once(store: FileSecrets) -> None:
    store.put("HERE", "v")
    with pytest.raises(NotFoundError, match=r"no secrets ONE, TWO here \(known: HERE\)"):
        store.reveal(["ONE", "HERE", "TWO"])


@pytest.mark.parametrize("name", ["", "../token", "a/b", "a-b", "1A", ".aside-0", "A\n", "A B"])
def test_names_that_are_no_variables_are_refused(store: FileSecrets, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid variable name"):
        store.put(name, "v")
    with pytest.raises(UsageError):
        store.reveal([name])
    assert store.names() == []


@pytest.mark.parametrize(("value", "words"), [("", "is empty"), ("a\0b", "NUL"), ("x" * (VALUE_LIMIT + 1), "at most")])
def test_values_that_no_variable_can_carry_are_refused(store: FileSecrets, value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        store.put("KEY", value)
    assert store.names() == []


@pytest.mark.parametrize(("moment", "expected"), [("before", "old"), ("after", "new")])
def test_a_crash_around_the_rename_leaves_a_whole_value(tmp_path: Path, moment: str, expected: str) -> None:
    store = FileSecrets(tmp_path / "secrets")
    store.put("KEY", "old")
    code = (
        "import sys; from pathlib import Path; from fairway.app.system import crash_point\n"
        "from fairway.engines.local.secret import FileSecrets\n"
        f"crash_point.arm('secret.rename:{moment}'); FileSecrets(Path(sys.argv[1])).put('KEY', 'new')"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "secrets")], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert store.reveal(["KEY"]) == {"KEY": expected}
    assert store.names() == ["KEY"]
