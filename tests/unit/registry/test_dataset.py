"""Versions of datasets."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairway.errors import NotFoundError, RefusedError, UsageError
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry, is_reference


@pytest.fixture
def datasets(tmp_path: Path) -> DatasetRegistry:
    return DatasetRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "1.png").write_bytes(b"one")
    (folder / ".gitignore").write_text("*\n")
    return folder


def test_versions_rise_and_stay_as_they_were(datasets: DatasetRegistry, source: Path) -> None:
    first = datasets.add("mnist", source, 1.0)
    (source / "train" / "2.png").write_bytes(b"three")
    second = datasets.add("mnist", source, 2.0)
    assert [str(version) for version in datasets.list()] == ["mnist@1", "mnist@2"]
    assert (first.files, first.size, first.created) == (2, 5, 1.0)
    assert (second.files, second.size) == (3, 10)
    assert sorted(path.name for path in datasets.resolve("mnist@1").rglob("*.png")) == ["1.png"]
    assert sorted(path.name for path in datasets.resolve("mnist@2").rglob("*.png")) == ["1.png", "2.png"]
    assert datasets.resolve("mnist@latest") == datasets.resolve("mnist") == datasets.resolve("mnist@2")


def test_the_same_content_again_is_the_same_version(datasets: DatasetRegistry, source: Path) -> None:
    assert datasets.add("mnist", source, 1.0) == datasets.add("mnist", source, 2.0)
    assert datasets.add("other", source, 1.0).version == 1


def test_one_file_is_a_dataset_too(datasets: DatasetRegistry, source: Path) -> None:
    version = datasets.add("one", source / "train" / "1.png", 1.0)
    assert version.is_file
    assert datasets.resolve("one@1").name == "1.png"
    assert datasets.resolve("one@1").read_bytes() == b"one"


def test_what_is_handed_out_shares_its_space_with_the_registry(datasets: DatasetRegistry, source: Path) -> None:
    datasets.add("mnist", source, 1.0)
    state = (datasets.resolve("mnist@1") / "train" / "1.png").stat()
    assert state.st_nlink == 2
    assert state.st_mode & 0o222 == 0


@pytest.mark.parametrize(
    ("reference", "words"), [("gone@1", "no dataset gone"), ("mnist@9", "has no version 9; it has 1"), ("mnist@x", "x")]
)
def test_what_is_not_there_is_told_with_what_is(datasets: DatasetRegistry, source: Path, reference: str, words: str) -> None:
    datasets.add("mnist", source, 1.0)
    with pytest.raises(NotFoundError, match=words):
        datasets.resolve(reference)


@pytest.mark.parametrize("name", ["../x", "", "A", "a/b", "."])
def test_names_that_are_none_reach_no_file(datasets: DatasetRegistry, source: Path, name: str) -> None:
    with pytest.raises(UsageError):
        datasets.add(name, source, 1.0)
    with pytest.raises(UsageError):
        datasets.get(f"{name}@1" if name else "")


def test_nothing_and_links_to_the_outside_are_refused(datasets: DatasetRegistry, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no file or folder"):
        datasets.add("mnist", tmp_path / "gone", 1.0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RefusedError, match="is empty"):
        datasets.add("mnist", tmp_path / "empty", 1.0)
    (tmp_path / "empty" / "link").symlink_to("/etc/passwd")
    with pytest.raises(RefusedError, match="link is a link"):
        datasets.add("mnist", tmp_path / "empty", 1.0)
    assert datasets.list() == []


def test_several_who_add_at_once_get_numbers_of_their_own(datasets: DatasetRegistry, tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"file{number}").write_text(str(number))
    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(lambda number: datasets.add("mnist", tmp_path / f"file{number}", 1.0), range(8)))
    assert sorted(version.version for version in versions) == list(range(1, 9))
    assert {datasets.resolve(str(version)).read_text() for version in versions} == {str(number) for number in range(8)}


def test_a_crash_before_the_number_is_taken_leaves_no_version(tmp_path: Path, datasets: DatasetRegistry, source: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fairway.app.system import crash_point\n"
        "from fairway.registry.blob import BlobStore; from fairway.registry.dataset import DatasetRegistry\n"
        "home = Path(sys.argv[1]); data = DatasetRegistry(home, BlobStore(home / 'blobs'))\n"
        "crash_point.arm('registry.rename:before:' + sys.argv[3]); data.add('mnist', Path(sys.argv[2]), 1.0)"
    )
    for place in range(1, 10):
        ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "home"), str(source), str(place)], check=False)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL
        assert datasets.list() == []
    assert [str(version) for version in datasets.list()] == ["mnist@1"]
    assert (datasets.resolve("mnist@1") / "train" / "1.png").read_bytes() == b"one"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("mnist@3", True), ("mnist@latest", True), ("mnist", False), ("a/b@3", False), ("s3://a@b", False), ("@3", False)],
)
def test_what_looks_like_a_version(text: str, expected: bool) -> None:
    assert is_reference(text) == expected
