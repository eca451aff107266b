"""Content damaged on the disk: it is detected, reported, not served, and repaired by a good copy."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairway.app.verification_progress import VerificationProgress, VerificationStoppedError
from fairway.errors import DamagedError, NotFoundError
from fairway.registry import snapshot
from fairway.registry.blob import MISSING, BlobStore
from fairway.registry.content_export import ContentExport
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.registry.remote_blob import RemoteBlobStore
from fairway.state.model import ModelVersion
from fairway.testing.builder.model_file import onnx_file
from fairway.testing.conformance.model_conformance import FACTS, make_source

WEIGHTS = "weights.data"


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "home" / "blobs")


@pytest.fixture
def models(tmp_path: Path, blobs: BlobStore) -> ModelRegistry:
    return ModelRegistry(tmp_path / "home", blobs)


@pytest.fixture
def datasets(tmp_path: Path, blobs: BlobStore) -> DatasetRegistry:
    return DatasetRegistry(tmp_path / "home", blobs)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = make_source(tmp_path / "source")
    (folder / WEIGHTS).write_bytes(os.urandom(3 << 20))
    return folder


@pytest.fixture
def made(models: ModelRegistry, source: Path) -> ModelVersion:
    return models.register("mnist", str(source), FACTS, 1.0)


def digest_of(models: ModelRegistry, version: ModelVersion, path: str = WEIGHTS) -> str:
    return next(file.sha256 for file in models.files(version) if file.path == path)


def damage(path: Path) -> None:
    """Change a byte in place, as a program would do it."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    path.chmod(0o444)


def damage_unseen(path: Path) -> None:
    """Change a byte as a faulty disk would: without changing the file's times, as far as a test can do that."""
    state = path.stat()
    damage(path)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def bytes_read(call: Callable[[], object]) -> int:
    def count() -> int:
        return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])

    before = count()
    call()
    return count() - before


def test_a_damaged_file_is_neither_pulled_nor_served_nor_sent(
    models: ModelRegistry, blobs: BlobStore, made: ModelVersion, tmp_path: Path
) -> None:
    models.folder(made)
    damage(blobs.path(digest_of(models, made)))
    handing = ContentExport(blobs, models, DatasetRegistry(tmp_path / "home", blobs))
    ways: list[Callable[[], object]] = [
        lambda: models.pull(made, str(tmp_path / "pulled")),
        lambda: models.folder(made),
        lambda: handing.model("mnist@1"),
    ]
    for way in ways:
        with pytest.raises(DamagedError) as problem:
            way()
        assert problem.value.message.startswith(f"mnist@1: {WEIGHTS} is damaged in {blobs.root}: its content has SHA-256 ")
        assert "fairway model register mnist PATH" in problem.value.fix
        assert "fairway model verify mnist" in problem.value.fix
    assert not (tmp_path / "pulled").exists()


def test_a_good_copy_repairs_a_damaged_one_without_writing_to_it(
    models: ModelRegistry, blobs: BlobStore, made: ModelVersion, source: Path, tmp_path: Path
) -> None:
    place = blobs.path(digest_of(models, made))
    served = models.folder(made) / WEIGHTS
    damage(place)
    with served.open("rb") as opened:
        bad = opened.read()
        assert models.register("mnist", str(source), FACTS, 2.0).version == 1
        opened.seek(0)
        assert opened.read() == bad
    assert place.read_bytes() == (source / WEIGHTS).read_bytes()
    models.pull(made, str(tmp_path / "pulled"))
    assert (tmp_path / "pulled" / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()
    assert (models.folder(made) / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()
    assert served.samefile(place)
    assert sorted(path.name for path in served.parent.iterdir()) == ["assets", "model.onnx", WEIGHTS]


def test_small_files_and_the_list_of_files_are_repaired_too(
    models: ModelRegistry, blobs: BlobStore, made: ModelVersion, source: Path
) -> None:
    small = digest_of(models, made, "model.onnx")
    for digest in (small, made.digest):
        damage(blobs.path(digest))
    with pytest.raises(DamagedError, match="mnist@1: blob"):
        models.folder(made)
    report = models.verify([made], VerificationProgress())
    assert [(each.version, each.path) for each in report.damaged] == [("mnist@1", "")]
    models.register("mnist", str(source), FACTS, 2.0)
    assert (models.folder(made) / "model.onnx").read_bytes() == onnx_file()


def test_what_is_known_to_be_intact_is_not_read_again(models: ModelRegistry, made: ModelVersion, tmp_path: Path) -> None:
    assert bytes_read(lambda: models.folder(made)) < 1 << 20
    assert bytes_read(lambda: models.folder(made)) < 1 << 20
    again = ModelRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))
    assert bytes_read(lambda: again.folder(made)) < 1 << 20


@pytest.mark.parametrize("cache", ["gone", "damaged", "a folder"])
def test_a_cache_that_is_of_no_use_costs_time_only(
    models: ModelRegistry, blobs: BlobStore, made: ModelVersion, cache: str
) -> None:
    path = blobs.root / "checked"
    assert path.stat().st_size <= 8 << 20
    path.unlink()
    if cache == "damaged":
        path.write_bytes(os.urandom(8 << 20))
    if cache == "a folder":
        path.mkdir()
    assert bytes_read(lambda: models.folder(made)) >= 3 << 20
    assert (bytes_read(lambda: models.folder(made)) < 1 << 20) == (cache != "a folder")
    damage(blobs.path(digest_of(models, made)))
    with pytest.raises(DamagedError):
        models.folder(made)


def test_a_file_that_was_written_just_now_is_not_remembered(blobs: BlobStore) -> None:
    digest = blobs.put(b"content")
    path = blobs.path(digest)
    os.utime(path)
    for _ in range(2):
        assert bytes_read(lambda: blobs.fault(digest)) >= 7
        assert blobs.fault(digest) == ""
    os.utime(path, (time.time() - 10, time.time() - 10))
    damage_unseen(path)
    assert blobs.fault(digest).startswith("its content has SHA-256 ")


def test_verifying_reads_everything_and_names_what_is_wrong(
    models: ModelRegistry, blobs: BlobStore, made: ModelVersion, source: Path
) -> None:
    (source / "model.onnx").write_bytes(onnx_file() + b"")
    (source / "more.txt").write_text("more")
    second = models.register("mnist", str(source), FACTS, 2.0)
    course = VerificationProgress()
    report = models.verify([made, second], course)
    assert (report.versions, report.files, report.damaged) == (2, 4, ())
    assert course.done == course.total == report.size == sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    damage(blobs.path(digest_of(models, made)))
    blobs.path(digest_of(models, second, "more.txt")).unlink()
    report = models.verify([made, second], VerificationProgress())
    assert [(each.version, each.path) for each in report.damaged] == [
        ("mnist@1", WEIGHTS),
        ("mnist@2", "more.txt"),
        ("mnist@2", WEIGHTS),
    ]
    assert report.damaged[1].problem == MISSING


def test_verifying_does_not_believe_the_cache_and_corrects_it(
    models: ModelRegistry, blobs: BlobStore, made: ModelVersion, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = blobs.path(digest_of(models, made))
    known = path.stat()
    damage_unseen(path)
    real = os.stat

    def unchanged(place: str | os.PathLike[str], **more: object) -> os.stat_result:
        """Return the state from before, as with a disk that lost a bit."""
        return known if os.fspath(place) == os.fspath(path) else real(place, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", unchanged)
    assert blobs.intact(digest_of(models, made))
    assert [each.path for each in models.verify([made], VerificationProgress()).damaged] == [WEIGHTS]
    with pytest.raises(DamagedError):
        models.pull(made, str(tmp_path / "pulled"))


def test_a_verification_that_was_stopped_ends_soon(models: ModelRegistry, made: ModelVersion) -> None:
    course = VerificationProgress(stopped=True)
    with pytest.raises(VerificationStoppedError):
        models.verify([made], course)
    assert course.done == 0


def test_missing_content_is_said_before_the_first_byte(models: ModelRegistry, blobs: BlobStore, made: ModelVersion) -> None:
    blobs.path(digest_of(models, made)).unlink()
    with pytest.raises(NotFoundError, match=f"the content of {WEIGHTS}"):
        models.packed(made)


def test_datasets_are_checked_and_repaired_alike(datasets: DatasetRegistry, blobs: BlobStore, source: Path) -> None:
    version = datasets.add("rows", str(source), 1.0)
    served = datasets.resolve("rows@1") / WEIGHTS
    # The files are old enough for their digests to be remembered, so that they would not be read again.
    for path in source.rglob("*"):
        os.utime(path, (1.0, 1.0))
    time_of_memory = snapshot.take(source, blobs, ignoring=False, limit=None, recorded=True)
    assert time_of_memory.digest == version.digest
    damage(served)
    with pytest.raises(DamagedError, match=rf"rows@1: {WEIGHTS} is damaged"):
        datasets.resolve("rows@1")
    with pytest.raises(DamagedError, match="fairway data add rows PATH"):
        datasets.packed(version)
    assert [each.path for each in datasets.verify([version], VerificationProgress()).damaged] == [WEIGHTS]
    assert datasets.add("rows", str(source), 2.0) == version
    assert served.read_bytes() != (source / WEIGHTS).read_bytes()
    assert (datasets.resolve("rows@1") / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()
    assert datasets.verify([version], VerificationProgress()).damaged == ()


def test_adding_repairs_what_was_never_read_since(datasets: DatasetRegistry, blobs: BlobStore, source: Path) -> None:
    version = datasets.add("rows", str(source), 1.0)
    damage(blobs.path(next(file.sha256 for file in datasets.files(version) if file.path == WEIGHTS)))
    assert datasets.add("rows", str(source), 2.0) == version
    assert datasets.verify([version], VerificationProgress()).damaged == ()


def test_of_a_reference_the_list_alone_is_verified(datasets: DatasetRegistry, source: Path) -> None:
    version = datasets.add("rows", str(source), 1.0, reference=True)
    found = datasets.verify([version], VerificationProgress())
    assert (found.versions, found.files, found.damaged) == (1, 0, ())


def test_damaged_code_is_repaired_by_the_next_snapshot(blobs: BlobStore, source: Path, tmp_path: Path) -> None:
    taken = snapshot.take(source, blobs)
    for path in source.rglob("*"):
        os.utime(path, (1.0, 1.0))
    snapshot.take(source, blobs)
    damage(blobs.path(next(entry.sha256 for entry in taken.manifest.entries if entry.path == WEIGHTS)))
    with pytest.raises(DamagedError, match=WEIGHTS):
        snapshot.materialise(taken.manifest, blobs, tmp_path / "code")
    assert snapshot.take(source, blobs).digest == taken.digest
    snapshot.materialise(taken.manifest, blobs, tmp_path / "code")
    assert (tmp_path / "code" / WEIGHTS).read_bytes() == (source / WEIGHTS).read_bytes()


@pytest.fixture
def store(tmp_path: Path) -> RemoteBlobStore:
    return RemoteBlobStore(tmp_path / "near", f"file://{tmp_path}/far")


def test_a_store_elsewhere_repairs_what_was_fetched(store: RemoteBlobStore, tmp_path: Path) -> None:
    digest = store.put(b"content")
    damage(store.path(digest))
    store.provide([digest])
    assert store.read(digest) == b"content"
    # The far copy is damaged: a good copy replaces that too.
    shutil.rmtree(tmp_path / "near" / "sha256")
    far = next(path for path in (tmp_path / "far").rglob("*") if path.is_file())
    damage(far)
    with pytest.raises(DamagedError, match="it is damaged there"):
        store.provide([digest])
    store.put(b"content")
    shutil.rmtree(tmp_path / "near" / "sha256")
    assert store.read(digest) == b"content"
