"""Content at other locations: fetched, described, and refused when it would leave its folder."""

from __future__ import annotations

import os
import uuid
import zipfile
from pathlib import Path

import fsspec
import pytest

from fairway.errors import NotFoundError, RefusedError, UsageError
from fairway.registry import external_source, snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.registry.remote_blob import RemoteBlobStore, open_blobs
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import onnx_file


@pytest.fixture
def bucket() -> str:
    uri = f"memory://{uuid.uuid4()}"
    system, place = fsspec.core.url_to_fs(uri)
    system.pipe({f"{place}/models/a/model.onnx": onnx_file(), f"{place}/models/a/assets/x.txt": b"x"})
    return uri


def test_a_model_is_imported_from_a_uri(bucket: str, tmp_path: Path) -> None:
    models = ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs"))
    version = models.register("a", f"{bucket}/models/a", ModelFacts(), 1.0)
    assert [file.path for file in models.files(version)] == ["assets/x.txt", "model.onnx"]
    one = models.register("b", f"{bucket}/models/a/model.onnx", ModelFacts(), 1.0)
    assert [file.path for file in models.files(one)] == ["model.onnx"]
    (tmp_path / "m.onnx").write_bytes(onnx_file())
    assert models.register("c", f"file://{tmp_path}/m.onnx", ModelFacts(), 1.0).format == "onnx"
    assert list((tmp_path / "fetched").iterdir()) == []


@pytest.mark.parametrize(
    ("uri", "error", "words"),
    [
        ("nosuch://x/y", UsageError, "nosuch"),
        ("memory://nothing/here", NotFoundError, "nothing at memory://nothing/here"),
        ("file:///no/such/place", NotFoundError, "there is no file or folder"),
    ],
)
def test_what_cannot_be_fetched_is_told(uri: str, error: type[Exception], words: str, tmp_path: Path) -> None:
    models = ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs"))
    with pytest.raises(error) as problem:
        models.register("a", uri, ModelFacts(), 1.0)
    assert words in str(problem.value)
    assert models.list() == []


def test_names_that_lead_out_are_not_fetched(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as file:
        file.writestr("../../evil.onnx", onnx_file())
    models = ModelRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))
    with pytest.raises((RefusedError, NotFoundError)):
        models.register("a", f"zip://::file://{tmp_path}/evil.zip", ModelFacts(), 1.0)
    assert list(tmp_path.rglob("*.onnx")) == []
    assert models.list() == []


def test_a_home_without_its_folder_fetches_from_the_store(tmp_path: Path) -> None:
    uri = f"memory://{uuid.uuid4()}/store"
    first = open_blobs(tmp_path / "one", uri)
    (tmp_path / "big").write_bytes(os.urandom(3 << 20))
    digest, _ = first.put_files([tmp_path / "big"])[tmp_path / "big"]
    small = first.put(b"small")
    second = open_blobs(tmp_path / "two", uri)
    assert second.read(small) == b"small"
    second.provide([digest, digest])
    assert second.path(digest).read_bytes() == (tmp_path / "big").read_bytes()
    with pytest.raises(NotFoundError, match="neither in"):
        second.read("0" * 64)


def test_what_comes_back_damaged_is_not_handed_out(tmp_path: Path) -> None:
    uri = f"memory://{uuid.uuid4()}/store"
    digest = RemoteBlobStore(tmp_path / "one", uri).put(b"content")
    system, place = fsspec.core.url_to_fs(uri)
    system.pipe_file(f"{place}/sha256/{digest[:2]}/{digest[2:]}", b"other")
    with pytest.raises(Exception, match="damaged"):
        RemoteBlobStore(tmp_path / "two", uri).read(digest)
    assert not BlobStore(tmp_path / "two").has(digest)


def test_a_reference_is_described_and_not_copied(tmp_path: Path) -> None:
    data = tmp_path / "images"
    data.mkdir()
    (data / "1.png").write_bytes(b"one" * 1000)
    datasets = DatasetRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))
    version = datasets.add("images", str(data), 5e9, reference=True)
    assert (version.files, version.size, version.reference) == (1, 3000, str(data))
    assert [file.path for file in datasets.files(version)] == ["1.png"]
    assert datasets.add("images", str(data), 6e9, reference=True) == version
    assert datasets.locate("images@1") == str(data)
    kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file() and path.name != "checked"]
    assert all(path.stat().st_size < 1000 for path in kept)
    with pytest.raises(RefusedError, match="never copied"):
        datasets.resolve("images@1")
    copied = datasets.add("images", str(data), 7e9)
    assert (copied.version, copied.reference) == (2, "")
    assert copied.digest != version.digest, "a manifest of content that is kept would promise that it is"
    assert datasets.locate("images@2") == str(datasets.resolve("images@2"))


def test_a_copy_after_a_reference_has_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Treat every file as unchanged for long, so that its digest is remembered.
    monkeypatch.setattr(snapshot, "SETTLED", -60.0)
    data = tmp_path / "images"
    data.mkdir()
    (data / "1.png").write_bytes(b"one")
    blobs = BlobStore(tmp_path / "home" / "blobs")
    datasets = DatasetRegistry(tmp_path / "home", blobs)
    # The digests remembered from here on do not imply that blobs exist.
    assert snapshot.fingerprint(data, blobs)
    datasets.add("images", str(data), 1.0, reference=True)
    datasets.add("images", str(data), 1.0)
    assert (datasets.resolve("images@2") / "1.png").read_bytes() == b"one"


def test_code_that_shares_a_file_with_a_deleted_model_is_kept_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Treat every file as unchanged for long, so that its digest is remembered.
    monkeypatch.setattr(snapshot, "SETTLED", -60.0)
    code = tmp_path / "code"
    code.mkdir()
    (code / "model.onnx").write_bytes(onnx_file())
    (code / "train.py").write_text("pass")
    blobs = BlobStore(tmp_path / "home" / "blobs")
    snapshot.take(code, blobs)
    models = ModelRegistry(tmp_path / "home", blobs)
    models.delete(models.register("m", str(code / "model.onnx"), ModelFacts(), 1.0))
    assert models.free([]) > 0
    again = snapshot.take(code, blobs)
    snapshot.materialise(again.manifest, blobs, tmp_path / "restored")
    assert (tmp_path / "restored" / "model.onnx").read_bytes() == onnx_file()


@pytest.mark.parametrize("what", ["changed", "longer", "added", "removed", "gone"])
def test_a_reference_that_has_changed_is_refused(tmp_path: Path, what: str) -> None:
    data = tmp_path / "images"
    data.mkdir()
    for name in ("1.png", "2.png"):
        (data / name).write_bytes(b"one")
    datasets = DatasetRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))
    created = os.stat(data / "1.png").st_mtime
    datasets.add("images", str(data), created, reference=True)
    match what:
        case "changed":
            (data / "1.png").write_bytes(b"two")
        case "longer":
            (data / "1.png").write_bytes(b"three")
            os.utime(data / "1.png", (1, 1))
        case "added":
            (data / "3.png").write_bytes(b"x")
        case "removed":
            (data / "2.png").unlink()
        case _:
            data.rename(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="has changed since it was added"):
        datasets.locate("images@1")


def test_a_reference_may_be_a_uri(bucket: str, tmp_path: Path) -> None:
    datasets = DatasetRegistry(tmp_path, BlobStore(tmp_path / "blobs"))
    version = datasets.add("remote", f"{bucket}/models", 1.0, reference=True)
    assert [(file.path, file.sha256) for file in datasets.files(version)] == [("a/assets/x.txt", ""), ("a/model.onnx", "")]
    assert datasets.locate("remote") == f"{bucket}/models"
    system, place = fsspec.core.url_to_fs(bucket)
    system.pipe_file(f"{place}/models/a/assets/x.txt", b"longer")
    with pytest.raises(RefusedError, match=r"x\.txt was changed"):
        datasets.locate("remote")


def test_an_empty_folder_is_no_reference(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "gone"):
        with pytest.raises((RefusedError, NotFoundError)):
            external_source.manifest_of(str(place))
