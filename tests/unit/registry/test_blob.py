"""Blobs are stored completely, once, under their digest."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairway.errors import BugError, NotFoundError, RefusedError
from fairway.registry.blob import BlobStore

DIGEST = hashlib.sha256(b"content").hexdigest()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def names(blobs: BlobStore) -> list[str]:
    return [path.parent.name + path.name for path in (blobs.root / "sha256").glob("*/*")]


def test_what_was_put_is_read_back(blobs: BlobStore) -> None:
    assert blobs.put(b"content") == DIGEST
    assert blobs.read(DIGEST) == b"content"
    assert blobs.has(DIGEST)
    assert blobs.path(DIGEST) == blobs.root / "sha256" / DIGEST[:2] / DIGEST[2:]
    assert blobs.path(DIGEST).stat().st_mode & 0o222 == 0


def test_the_same_content_is_kept_once(blobs: BlobStore, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_bytes(b"content")
    blobs.put(b"content")
    inode = blobs.path(DIGEST).stat().st_ino
    assert blobs.put_files(paths) == dict.fromkeys(paths, (DIGEST, 7))
    assert blobs.path(DIGEST).stat().st_ino == inode
    assert list((blobs.root / "aside").iterdir()) == []


def test_many_files_and_large_ones(blobs: BlobStore, tmp_path: Path) -> None:
    paths = []
    for number in range(40):
        path = tmp_path / str(number)
        path.write_bytes(bytes([number]) * (number * 100_000))
        paths.append(path)
    found = blobs.put_files(paths)
    assert all(blobs.path(found[path][0]).read_bytes() == path.read_bytes() for path in paths)


def test_several_writers_at_once(blobs: BlobStore, tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(20)]
    for path in paths:
        path.write_bytes(path.name.encode() * 1000)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: BlobStore(blobs.root).put_files(paths), range(4)))
    assert all(result == results[0] for result in results)
    assert len(names(blobs)) == 20
    assert list((blobs.root / "aside").iterdir()) == []


def test_a_blob_that_is_not_there(blobs: BlobStore) -> None:
    with pytest.raises(NotFoundError):
        blobs.read(DIGEST)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, DIGEST[:-1], DIGEST + "0"])
def test_what_is_no_digest_reaches_no_file(blobs: BlobStore, digest: str) -> None:
    with pytest.raises(BugError):
        blobs.path(digest)


def test_a_file_that_cannot_be_read_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(RefusedError, match="was removed while it was read"):
        blobs.put_files([tmp_path / "a", tmp_path / "gone"])
    assert names(blobs) == []
    assert [path for path in (blobs.root / "aside").iterdir() if path.stat().st_size] == []


@pytest.mark.parametrize(("moment", "kept"), [("before", 1), ("after", 2)])
def test_a_crash_leaves_whole_blobs_only(tmp_path: Path, blobs: BlobStore, moment: str, kept: int) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
    code = (
        "import sys; from pathlib import Path; from fairway.app.system import crash_point\n"
        "from fairway.registry.blob import BlobStore\n"
        f"crash_point.arm('registry.rename:{moment}:2'); BlobStore(Path(sys.argv[1])).put_files(map(Path, sys.argv[2:]))"
    )
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    ended = subprocess.run([sys.executable, "-c", code, str(blobs.root), *paths], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(names(blobs)) == kept
    assert all(hashlib.sha256(blobs.read(name)).hexdigest() == name for name in names(blobs))


def written_by(call: Callable[[], object]) -> tuple[int, int]:
    """Return the bytes that this process read and wrote during the call, including those from the page cache."""

    def count() -> tuple[int, int]:
        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(lines["rchar"]), int(lines["wchar"])

    before = count()
    call()
    after = count()
    return after[0] - before[0], after[1] - before[1]


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs the kernel's counters")
def test_what_is_known_is_read_once_and_nothing_is_written(blobs: BlobStore, tmp_path: Path) -> None:
    sizes = [0, 100, 1 << 20, (1 << 20) + 1, 5 << 20, 5 << 20]
    paths = [tmp_path / str(number) for number in range(len(sizes))]
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        path.write_bytes(bytes([number]) * size)
    first = blobs.put_files(paths)
    read, wrote = written_by(lambda: blobs.put_files(paths))
    # Reading the counters reads a little too.
    assert sum(sizes) <= read < sum(sizes) + 10_000
    assert wrote == 0
    assert blobs.put_files(paths) == first
    assert list((blobs.root / "aside").iterdir()) == []


def test_another_file_of_a_known_size_is_kept(blobs: BlobStore, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * (3 << 20))
        digest, size = blobs.put_files([tmp_path / name])[tmp_path / name]
        assert size == 3 << 20
        assert blobs.path(digest).read_bytes() == (tmp_path / name).read_bytes()


def test_a_large_file_given_twice_is_kept_once(blobs: BlobStore, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x" * (3 << 20))
    found = blobs.put_files([tmp_path / "a", tmp_path / "b"])
    assert len(set(found.values())) == 1
    assert len(names(blobs)) == 1
