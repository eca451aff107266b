"""Code that callers upload."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairway.engines.kubernetes.record.code_upload import CodeUploads
from fairway.errors import RefusedError
from fairway.registry import snapshot
from fairway.registry.remote_blob import open_blobs
from fairway.sdk.submission.code_upload import pack


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 100):
        yield data[start : start + 100]


def archive(*members: tuple[str, bytes], link: str = "") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        if link:
            entry = tarfile.TarInfo("link")
            entry.type, entry.linkname = tarfile.SYMTYPE, link
            tar.addfile(entry)
    return made.getvalue()


async def test_the_folder_arrives_without_what_is_ignored_under_the_digest_that_it_has_here(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "train.py").write_text("print(1)")
    (work / "run.sh").write_text("true")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("src/train.py")
    (work / ".fairwayignore").write_text("data/\n")
    (work / "data").mkdir()
    (work / "data" / "big").write_bytes(b"x" * 1000)
    blobs = open_blobs(tmp_path / "blobs", "")
    kept = await CodeUploads(blobs, tmp_path / "received").keep(pieces(pack(str(work))), "ann")
    assert kept == f"blob:{snapshot.fingerprint(work, blobs)}"
    snapshot.materialise(snapshot.load(kept.removeprefix("blob:"), blobs), blobs, tmp_path / "there")
    there = tmp_path / "there"
    assert sorted(path.name for path in there.iterdir()) == [".fairwayignore", "link", "run.sh", "src"]
    assert (there / "link").read_text() == "print(1)"
    assert (there / "run.sh").stat().st_mode & 0o100
    assert list((tmp_path / "received").iterdir()) == [], "nothing is left of what was sent"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(archive(("../out", b"x")), id="above"),
        pytest.param(archive(("a/../../out", b"y")), id="above by a detour"),
        pytest.param(archive(link="/etc/passwd"), id="a link to the root"),
        pytest.param(archive(link="../../out"), id="a link above"),
        pytest.param(b"no archive at all", id="no archive"),
        pytest.param(archive(("a", b"x" * 5000))[:-20], id="half an archive"),
    ],
)
async def test_what_leads_out_or_is_broken_is_refused_and_nothing_is_kept(tmp_path: Path, sent: bytes) -> None:
    codes = CodeUploads(open_blobs(tmp_path / "blobs", ""), tmp_path / "received")
    with pytest.raises(RefusedError, match="cannot be unpacked"):
        await codes.keep(pieces(sent), "ann")
    assert list((tmp_path / "received").iterdir()) == []
    assert not (tmp_path / "out").exists()


async def test_too_much_is_refused_also_when_it_was_packed_small(tmp_path: Path) -> None:
    codes = CodeUploads(open_blobs(tmp_path / "blobs", ""), tmp_path / "received", limit=10_000)
    with pytest.raises(RefusedError, match="the limit"):
        await codes.keep(pieces(archive(("zeros", bytes(20_000)))), "ann")
