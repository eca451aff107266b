"""Files uploaded by clients are stored whole or not at all; nothing remains of interrupted uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairway.app.port.tracking import ArtifactOwner
from fairway.engines.local.artifact import LocalArtifacts
from fairway.engines.local.home import EngineHome
from fairway.errors import NotFoundError, UsageError

OWN = ArtifactOwner("default", "mnist-1", "mnist-1")


async def pieces(*data: bytes, then: Exception | None = None) -> AsyncIterator[bytes]:
    for each in data:
        yield each
    if then is not None:
        raise then


async def test_each_lies_beside_its_owner(tmp_path: Path) -> None:
    artifacts = LocalArtifacts(EngineHome.open(tmp_path))
    for shelf in (OWN, ArtifactOwner("default", "abc", "mnist-1"), ArtifactOwner("team", "abc")):
        await artifacts.write(shelf, "a/b.txt", pieces(b"one", b"two"))
        assert artifacts.find(shelf, "a/b.txt").read_bytes() == b"onetwo"
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == [
        "jobs/default/mnist-1/artifacts/a/b.txt",
        "jobs/default/mnist-1/tracked/abc/a/b.txt",
        "tracked/team/abc/a/b.txt",
    ]


async def test_a_file_that_was_cut_off_is_not_there(tmp_path: Path) -> None:
    artifacts = LocalArtifacts(EngineHome.open(tmp_path))
    await artifacts.write(OWN, "a.txt", pieces(b"old"))
    with pytest.raises(EOFError):
        await artifacts.write(OWN, "a.txt", pieces(b"new", then=EOFError("gone")))
    assert artifacts.find(OWN, "a.txt").read_bytes() == b"old"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.txt"]


def test_what_a_dead_daemon_left_is_removed(tmp_path: Path) -> None:
    artifacts = LocalArtifacts(EngineHome.open(tmp_path))
    artifacts.forget_halves()
    (tmp_path / "tracked" / ".aside").mkdir(parents=True)
    (tmp_path / "tracked" / ".aside" / "half").write_bytes(b"x")
    artifacts.forget_halves()
    assert list((tmp_path / "tracked" / ".aside").iterdir()) == []


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    artifacts = LocalArtifacts(EngineHome.open(tmp_path))
    with pytest.raises(NotFoundError):
        artifacts.find(OWN, "a.txt")
    assert artifacts.list(OWN, "") == []
    with pytest.raises(UsageError):
        artifacts.find(ArtifactOwner("..", "abc"), "a.txt")
