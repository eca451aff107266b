"""Snapshots of real folders."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fairway.errors import NotFoundError, RefusedError
from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.manifest import FolderManifest, ManifestEntry


class Site:
    """A folder, and a store for blobs."""

    def __init__(self, path: Path) -> None:
        self.blobs = BlobStore(path / "blobs")
        self.folder = path / "code"
        self.folder.mkdir()
        self.write("train.py", "print(1)\n")
        self.write("lib/net.py", "x = 1\n")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.stat().st_ctime_ns if path.exists() else 0
        path.write_text(text)
        while path.stat().st_ctime_ns == before:
            # Repeat until the write falls into another tick of the file system's clock.
            path.write_text(text)
        return path

    def take(self) -> snapshot.CodeSnapshot:
        return snapshot.take(self.folder, self.blobs)

    def lay_out(self, digest: str, target: Path) -> Path:
        snapshot.materialise(snapshot.load(digest, self.blobs), self.blobs, target)
        return target


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    # The times of files are trusted at once; `Site.write` ensures that a change is visible in them.
    monkeypatch.setattr(snapshot, "SETTLED", -1.0)
    return Site(tmp_path)


def test_a_snapshot_laid_out_is_the_folder(site: Site, tmp_path: Path) -> None:
    site.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    (site.folder / "empty").mkdir()
    (site.folder / "lib" / "alias.py").symlink_to("net.py")
    copy = site.lay_out(site.take().digest, tmp_path / "copy")
    assert (copy / "train.py").read_text() == "print(1)\n"
    assert (copy / "lib" / "alias.py").readlink() == Path("net.py")
    assert (copy / "lib" / "alias.py").read_text() == "x = 1\n"
    assert (copy / "empty").is_dir()
    assert os.access(copy / "run.sh", os.X_OK)
    assert not os.access(copy / "train.py", os.X_OK)
    assert snapshot.take(copy, site.blobs).digest == site.take().digest


def test_the_digest_names_the_content(site: Site, tmp_path: Path) -> None:
    first = site.take().digest
    assert site.take().digest == first
    site.write("train.py", "print(2)\n")
    second = site.take().digest
    assert second != first
    site.write("train.py", "print(1)\n")
    assert site.take().digest == first
    (site.folder / "train.py").chmod(0o755)
    assert site.take().digest not in (first, second)


def test_files_that_have_not_changed_are_not_read_again(site: Site) -> None:
    assert site.take().read == 2
    assert site.take().read == 0
    site.write("lib/net.py", "x = 2\n")
    assert site.take().read == 1


def test_a_change_that_keeps_size_and_time_is_seen(site: Site) -> None:
    before = site.take()
    path = site.folder / "lib" / "net.py"
    times = path.stat()
    site.write("lib/net.py", "x = 9\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert site.take().digest != before.digest


def test_a_file_changed_just_now_is_not_trusted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SETTLED", 3600.0)
    site.take()
    assert site.take().read == 2


def test_blobs_that_were_lost_are_put_again(site: Site, tmp_path: Path) -> None:
    taken = site.take()
    for path in (site.blobs.root / "sha256").glob("*/*"):
        path.unlink()
    again = site.take()
    assert again.digest == taken.digest
    assert (site.lay_out(again.digest, tmp_path / "copy") / "train.py").exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"train.py": 1}'])
def test_a_damaged_memory_is_as_none(site: Site, text: str) -> None:
    site.take()
    for path in (site.blobs.root / "seen").iterdir():
        path.write_text(text)
    assert site.take().read == 2


def test_the_fingerprint_is_the_digest_without_keeping_anything(site: Site) -> None:
    found = snapshot.fingerprint(site.folder, site.blobs)
    assert not (site.blobs.root / "sha256").exists()
    assert site.take().digest == found


def test_a_folder_too_large_has_no_fingerprint(site: Site) -> None:
    assert snapshot.fingerprint(site.folder, site.blobs, limit=3) == ""


def test_too_much_is_refused_naming_the_largest(site: Site) -> None:
    with (site.folder / "weights.pt").open("wb") as file:
        file.truncate(snapshot.LIMIT)
    (site.folder / "data").mkdir()
    with (site.folder / "data" / "big.bin").open("wb") as file:
        file.truncate(2 * snapshot.LIMIT)
    with pytest.raises(RefusedError, match=r"the largest are data/ \(954 MiB\), weights\.pt \(477 MiB\)") as caught:
        site.take()
    assert "--in-place" in caught.value.fix
    assert not (site.blobs.root / "sha256").exists()


def test_names_that_are_no_text(site: Site, tmp_path: Path) -> None:
    name = b"caf\xe9.py"
    Path(os.fsdecode(os.fsencode(site.folder) + b"/" + name)).write_text("x")
    digest = site.take().digest
    assert site.take().digest == digest
    assert os.path.exists(os.fsencode(site.lay_out(digest, tmp_path / "copy")) + b"/" + name)


def test_a_folder_that_is_there_stays_as_it_is(site: Site, tmp_path: Path) -> None:
    digest = site.take().digest
    copy = site.lay_out(digest, tmp_path / "copy")
    (copy / "train.py").write_text("mine")
    assert (site.lay_out(digest, copy) / "train.py").read_text() == "mine"


@pytest.mark.parametrize("path", ["../escaped", "/tmp/escaped", "a/../../escaped"])
def test_nothing_is_written_outside(site: Site, tmp_path: Path, path: str) -> None:
    digest = site.blobs.put(b"evil")
    with pytest.raises(RefusedError):
        snapshot.materialise(FolderManifest((ManifestEntry(path, 0o644, 4, digest),)), site.blobs, tmp_path / "deep" / "copy")
    assert not list(tmp_path.rglob("escaped"))


def test_content_that_is_gone_leaves_no_folder(site: Site, tmp_path: Path) -> None:
    manifest = FolderManifest((ManifestEntry("a", 0o644, 4, "0" * 64),))
    with pytest.raises(NotFoundError, match="the content of a"):
        snapshot.materialise(manifest, site.blobs, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob(".copy*"))


def test_unchanged_files_cost_microseconds_each(site: Site) -> None:
    for number in range(2000):
        site.write(f"d{number % 20}/f{number}.py", str(number % 10))
    site.take()
    begun = time.process_time()
    assert site.take().read == 0
    # At this rate, ten thousand take well under a second.
    assert time.process_time() - begun < 0.15
