"""Content that is uploaded in chunks, before a version refers to it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.app.upload import UploadedContent, nothing_held
from fairway.errors import RefusedError, UnavailableError
from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.manifest import FolderManifest, ManifestEntry
from fairway.registry.model import ModelRegistry
from fairway.registry.registry_namespace import RegistryNamespaces
from fairway.registry.remote_blob import RemoteBlobStore
from fairway.registry.upload import content_upload
from fairway.registry.upload.content_ownership import ContentOwnership, namespace_owner, user_owner
from fairway.registry.upload.content_upload import ABANDONED, ContentUploads, ExpectedContent, UploadProgress
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import onnx_file, pickled_file

LONG = 60.0


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def awaited(data: bytes) -> ExpectedContent:
    return ExpectedContent(hashlib.sha256(data).hexdigest(), len(data))


def send(blobs: BlobStore, data: bytes, owner: str = "ann") -> str:
    """Upload a whole content; return its digest."""
    here, one = ContentUploads(blobs), awaited(data)
    here.append(owner, one, 0, data)
    assert here.settle(owner, [one], LONG)[0].whole
    return one.digest


def send_folder(blobs: BlobStore, files: dict[str, bytes], owner: str = "ann") -> UploadedContent:
    """Upload a folder of these files, as an honest caller does."""
    entries = [ManifestEntry(name, 0o644, len(data), send(blobs, data, owner)) for name, data in sorted(files.items())]
    return UploadedContent(owner, send(blobs, FolderManifest(tuple(entries)).encoded(), owner))


def kept(blobs: BlobStore) -> list[str]:
    """Return the names of the stored blobs."""
    return [path.name for path in (blobs.root / "sha256").rglob("*") if path.is_file()]


@given(data=st.binary(max_size=400), pieces=st.lists(st.integers(0, 400), max_size=8))
def test_however_it_comes_it_is_whole_at_the_end_and_only_then(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, pieces: list[int]
) -> None:
    blobs = BlobStore(tmp_path_factory.mktemp("blobs"))
    one = awaited(data)
    for end in [*sorted(pieces), len(data)]:
        # A new object each time, like another process: only what is on the disk counts.
        here = ContentUploads(blobs)
        at = here.standing("ann", one).have
        here.append("ann", one, at, data[at : max(at, end)])
        (found,) = here.settle("ann", [one], LONG)
        assert found.whole == (found.have == len(data))
    assert ContentUploads(blobs).standing("ann", one).whole
    assert kept(blobs) == [], "it is nobody's yet"


def test_what_does_not_begin_where_the_part_ends_is_left_out(blobs: BlobStore) -> None:
    here, one = ContentUploads(blobs), awaited(b"0123456789")
    here.append("ann", one, 0, b"0123")
    here.append("ann", one, 0, b"0123")
    here.append("ann", one, 8, b"89")
    assert here.settle("ann", [one], LONG)[0].have == 4
    here.append("ann", one, 4, b"456789")
    assert here.settle("ann", [one], LONG)[0].whole


def test_what_is_large_is_compared_in_several_steps_each_bounded(blobs: BlobStore) -> None:
    data = os.urandom(3_000_000)
    here, one = ContentUploads(blobs), awaited(data)
    here.append("ann", one, 0, data)
    (found,) = here.settle("ann", [one], 0.0)
    assert (found.have, found.checked, found.whole) == (3_000_000, 0, False)
    assert here.settle("ann", [one], LONG)[0].whole


def test_other_content_than_announced_is_refused_and_gone(blobs: BlobStore) -> None:
    here, one = ContentUploads(blobs), awaited(b"honest")
    here.append("ann", one, 0, b"h0nest")
    with pytest.raises(RefusedError, match="the content sent as"):
        here.settle("ann", [one], LONG)
    assert here.standing("ann", one).have == 0
    with pytest.raises(RefusedError, match="has 6 bytes, but 7 were sent"):
        here.append("ann", one, 0, b"longer!")
    send(blobs, b"honest")


def test_nobodys_pieces_harm_or_help_another(blobs: BlobStore) -> None:
    here, one = ContentUploads(blobs), awaited(b"honest")
    here.append("eve", one, 0, b"evil")
    assert here.standing("ann", one).have == 0
    send(blobs, b"honest", "ann")
    assert not here.standing("eve", one).whole


def test_an_owner_and_a_digest_never_become_another_path(blobs: BlobStore) -> None:
    with pytest.raises(RefusedError, match="is not a SHA-256 digest"):
        ContentUploads(blobs).append("ann", ExpectedContent("../../../etc/passwd", 3), 0, b"bad")
    send(blobs, b"x", "../../out")
    (folder,) = (blobs.root / "arriving").iterdir()
    assert folder.parent == blobs.root / "arriving"


def test_what_nobody_wants_any_more_goes_after_a_day(blobs: BlobStore) -> None:
    here, half = ContentUploads(blobs), awaited(b"half of it")
    here.append("ann", half, 0, b"half")
    digest = send(blobs, b"whole")
    (folder,) = (blobs.root / "arriving").iterdir()
    now = (folder / digest).stat().st_mtime
    assert here.tidy(now + ABANDONED / 2) == 2
    os.utime(folder / digest, (now - 2 * ABANDONED, now - 2 * ABANDONED))
    assert here.standing("ann", awaited(b"whole")).whole, "who asks for it wants it"
    assert here.tidy(now + ABANDONED / 2) == 2
    assert here.tidy(now + 2 * ABANDONED) == 0
    assert here.standing("ann", half).have == 0
    assert not here.standing("ann", awaited(b"whole")).whole


def test_a_model_that_was_sent_is_the_one_that_is_registered_from_a_folder(tmp_path: Path, blobs: BlobStore) -> None:
    source = tmp_path / "model"
    source.mkdir()
    (source / "model.onnx").write_bytes(onnx_file())
    (source / "weights").write_bytes(b"w" * 50_000)
    sent = send_folder(blobs, {path.name: path.read_bytes() for path in source.iterdir()})
    models = ModelRegistry(tmp_path, blobs)
    version = models.register("mnist", sent, ModelFacts(), 1.0)
    assert (str(version), version.format, version.files) == ("mnist@1", "onnx", 2)
    assert [path for path in (blobs.root / "arriving").rglob("*") if path.is_file() and path.name != "lock"] == []
    assert models.register("mnist", str(source), ModelFacts(), 2.0) == version
    reader = replace(sent, held=blobs.has)
    assert models.register("mnist", reader, ModelFacts(), 3.0) == version, "content that its sender may read need not come again"
    assert (models.folder(version) / "weights").read_bytes() == b"w" * 50_000
    for path in (blobs.root / "sha256").rglob("*"):
        assert path.is_dir() or path.stat().st_mode & 0o777 == 0o444
    models.delete(version)
    models.free([])
    assert kept(blobs) == []
    with pytest.raises(UnavailableError, match="its manifest is missing or was removed"):
        models.register("mnist", sent, ModelFacts(), 4.0)


def test_who_knows_a_digest_and_never_had_the_content_gets_nothing(tmp_path: Path, blobs: BlobStore) -> None:
    files = {"model.onnx": onnx_file(), "weights": b"w" * 50_000}
    models = ModelRegistry(tmp_path, blobs)
    version = models.register("mnist", send_folder(blobs, files), ModelFacts(), 1.0)
    here, one = ContentUploads(blobs), awaited(files["weights"])
    assert here.standing("bob", one) == UploadProgress(0, 0, whole=False)
    assert here.settle("bob", [one], LONG) == [UploadProgress(0, 0, whole=False)]
    for held in (nothing_held, lambda digest: digest == version.digest, lambda digest: digest == one.digest):
        with pytest.raises(UnavailableError, match="is missing or was removed"):
            models.register("stolen", UploadedContent("bob", version.digest, held=held), ModelFacts(), 2.0)
    # A manifest of his own that refers to the content of others does not help either.
    entries = (
        ManifestEntry("model.onnx", 0o644, len(onnx_file()), send(blobs, onnx_file(), "bob")),
        ManifestEntry("w", 0o644, 50_000, one.digest),
    )
    own = send(blobs, FolderManifest(entries).encoded(), "bob")
    with pytest.raises(UnavailableError, match="the content of w is missing"):
        models.register("stolen", UploadedContent("bob", own), ModelFacts(), 3.0)
    assert models.list("stolen") == []
    # Neither do bytes of another content, or a part of the right one.
    here.append("bob", one, 0, b"x" * one.size)
    with pytest.raises(RefusedError, match="the content sent as"):
        here.settle("bob", [one], LONG)
    here.append("bob", one, 0, files["weights"][:-1])
    assert not here.settle("bob", [one], LONG)[0].whole
    # A caller who has the bytes may register them; they are stored once.
    here.append("bob", one, one.size - 1, files["weights"][-1:])
    assert here.settle("bob", [one], LONG)[0].whole
    assert models.register("his", UploadedContent("bob", own), ModelFacts(), 4.0).version == 1
    assert here.standing("bob", one) == UploadProgress(0, 0, whole=False), "what was kept is known by versions alone"


def test_a_namespace_holds_what_its_versions_hold(tmp_path: Path, blobs: BlobStore) -> None:
    namespaces = RegistryNamespaces(tmp_path, several=True)
    possession = ContentOwnership(tmp_path, blobs, namespaces)
    models, datasets = ModelRegistry(tmp_path, blobs, namespaces), DatasetRegistry(tmp_path, blobs, namespaces)
    version = models.register("team-a/mnist", send_folder(blobs, {"model.onnx": onnx_file()}), ModelFacts(), 1.0)
    (tmp_path / "rows").write_bytes(b"rows")
    rows = datasets.add("team-b/rows", tmp_path / "rows", 1.0)
    inside = hashlib.sha256(onnx_file()).hexdigest()
    assert [possession.held_in("team-a")(digest) for digest in (version.digest, inside, rows.digest)] == [True, True, False]
    assert [possession.held_in("team-b")(digest) for digest in (version.digest, inside, rows.digest)] == [False, False, True]
    assert not possession.held_in("default")(inside)
    (tmp_path / "elsewhere").write_bytes(onnx_file())
    datasets.add("team-b/described", tmp_path / "elsewhere", 2.0, reference=True)
    assert not possession.held_in("team-b")(inside), "a reference holds nothing"
    models.delete(version)
    assert not possession.held_in("team-a")(inside)


def test_code_is_had_by_whom_it_was_sent_by_and_to(tmp_path: Path, blobs: BlobStore) -> None:
    possession = ContentOwnership(tmp_path, blobs, RegistryNamespaces(tmp_path, several=True))
    digest = "0" * 64
    possession.note_code([namespace_owner("team-a"), user_owner("ann")], digest)
    assert possession.has_code([namespace_owner("team-a")], digest)
    assert possession.has_code([namespace_owner("team-b"), user_owner("ann")], digest)
    assert not possession.has_code([namespace_owner("team-b"), user_owner("bob")], digest)
    assert not possession.has_code([namespace_owner("ann"), user_owner("team-a")], digest)
    assert not possession.has_code([namespace_owner("team-a")], "../../x")


def test_what_is_refused_is_not_kept_and_need_not_be_sent_again(tmp_path: Path, blobs: BlobStore) -> None:
    sent, models = send_folder(blobs, {"model.pkl": pickled_file()}), ModelRegistry(tmp_path, blobs)
    with pytest.raises(RefusedError, match="pickle"):
        models.register("mnist", sent, ModelFacts(), 1.0)
    assert (models.list(), kept(blobs)) == ([], [])
    assert models.register("mnist", sent, ModelFacts(allow_pickle=True), 2.0).version == 1


def test_a_dataset_of_one_file_and_one_of_a_folder(tmp_path: Path, blobs: BlobStore) -> None:
    datasets = DatasetRegistry(tmp_path, blobs)
    sent = send_folder(blobs, {"rows.csv": b"1,2\n"})
    version = datasets.add("rows", UploadedContent(sent.owner, sent.digest, is_file=True), 1.0)
    assert version.is_file
    assert datasets.resolve("rows").read_bytes() == b"1,2\n"
    many = datasets.add("more", send_folder(blobs, {"a/b": b"1", "c": b""}), 1.0)
    assert (many.is_file, many.files, many.size) == (False, 2, 1)
    assert (datasets.resolve("more") / "a" / "b").read_bytes() == b"1"


def test_what_is_missing_is_said_and_nothing_is_registered(tmp_path: Path, blobs: BlobStore) -> None:
    gone = hashlib.sha256(b"never sent").hexdigest()
    sent = UploadedContent("ann", send(blobs, FolderManifest((ManifestEntry("a", 0o644, 10, gone),)).encoded()))
    with pytest.raises(UnavailableError, match="the content of a is missing"):
        DatasetRegistry(tmp_path, blobs).add("rows", sent, 1.0)
    assert DatasetRegistry(tmp_path, blobs).list() == []
    assert kept(blobs) == []


def entry(**changed: Any) -> dict[str, Any]:
    return {"path": "a", "mode": 0o644, "size": 4, "sha256": hashlib.sha256(b"data").hexdigest(), **changed}


def spelled(*entries: dict[str, Any], **more: Any) -> bytes:
    plain = [{key: value for key, value in entry.items() if value} for entry in entries]
    return json.dumps({"format": 1, "entries": plain, **more}, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(b"no manifest", id="no manifest"),
        pytest.param(b'{"format":1,"entries":[]}', id="nothing"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(spelled(entry(path="../a")), id="above"),
        pytest.param(spelled(entry(path="/etc/a")), id="absolute"),
        pytest.param(spelled(entry(path="a\0b")), id="a null"),
        pytest.param(spelled(entry(), entry()), id="twice"),
        pytest.param(spelled(entry(), entry(path="a/b")), id="below a file"),
        pytest.param(spelled(entry(size=0, sha256="", mode=0o777, symlink="..")), id="a link out"),
        pytest.param(spelled(entry(sha256="../../../etc/passwd")), id="no digest"),
        pytest.param(spelled(entry(sha256="")), id="no content"),
        pytest.param(spelled(entry(size=5)), id="another size"),
        pytest.param(spelled(entry(mode=0o4755)), id="setuid"),
        pytest.param(spelled(entry(path="a" * 256)), id="a long name"),
        pytest.param(spelled(entry(path="/".join("a" * 250 for _ in range(20)))), id="a long path"),
        pytest.param(spelled(entry(), elsewhere="s3://bucket"), id="elsewhere"),
        pytest.param(spelled(entry()).replace(b",", b", "), id="spelled otherwise"),
        pytest.param(spelled(entry(path="\\ud800")).replace(b"\\\\", b"\\"), id="half a character"),
    ],
)
def test_manifests_that_nobody_honest_sends_are_refused(tmp_path: Path, blobs: BlobStore, manifest: bytes) -> None:
    send(blobs, b"data")
    sent = UploadedContent("ann", send(blobs, manifest))
    with pytest.raises(RefusedError):
        DatasetRegistry(tmp_path, blobs).add("rows", sent, 1.0)
    assert (DatasetRegistry(tmp_path, blobs).list(), kept(blobs)) == ([], [])


def test_a_folder_is_not_taken_for_a_file(tmp_path: Path, blobs: BlobStore) -> None:
    sent = send_folder(blobs, {"a": b"1", "b": b"2"})
    with pytest.raises(RefusedError, match="declared as one file"):
        DatasetRegistry(tmp_path, blobs).add("rows", UploadedContent("ann", sent.digest, is_file=True), 1.0)


def test_a_store_behind_the_blobs_gets_it_too(tmp_path: Path) -> None:
    blobs = RemoteBlobStore(tmp_path / "blobs", f"file://{tmp_path}/store")
    made = DatasetRegistry(tmp_path, blobs).add("rows", send_folder(blobs, {"a": b"1"}), 1.0)
    fresh = RemoteBlobStore(tmp_path / "fresh", f"file://{tmp_path}/store")
    snapshot.materialise(snapshot.load(made.digest, fresh), fresh, tmp_path / "there")
    assert (tmp_path / "there" / "a").read_bytes() == b"1"


CODE = """
import sys
from pathlib import Path
from fairway.app.system import crash_point
from fairway.app.upload import UploadedContent
from fairway.registry.blob import BlobStore
from fairway.registry.model import ModelRegistry
from fairway.state.model import ModelFacts
home = Path(sys.argv[1])
crash_point.arm(sys.argv[3])
ModelRegistry(home, BlobStore(home / 'blobs')).register('mnist', UploadedContent('ann', sys.argv[2]), ModelFacts(), 1.0)
"""


def test_a_crash_leaves_all_or_nothing_and_the_second_try_needs_nothing_sent(tmp_path: Path, blobs: BlobStore) -> None:
    sent = send_folder(blobs, {"model.onnx": onnx_file(), "weights": b"w"})
    died = 0
    for place in [f"registry.rename:{moment}:{count}" for count in range(1, 9) for moment in ("before", "after")]:
        command = [sys.executable, "-c", CODE, str(tmp_path), sent.digest, place]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        died += 1
        for version in ModelRegistry(tmp_path, BlobStore(blobs.root)).list():
            assert content_upload.load(UploadedContent("", version.digest, held=blobs.has), blobs)[0].size == version.size
    assert died >= 3
    assert [str(version) for version in ModelRegistry(tmp_path, BlobStore(blobs.root)).list()] == ["mnist@1"]


def test_content_that_was_damaged_is_asked_for_again_and_repaired(blobs: BlobStore, tmp_path: Path) -> None:
    files = {"model.onnx": onnx_file(), "weights": b"w" * (2 << 20)}
    models = ModelRegistry(tmp_path, blobs)
    version = models.register("mnist", send_folder(blobs, files), ModelFacts(), 1.0)
    one = awaited(files["weights"])
    assert ContentUploads(blobs).standing("ann", one, held=blobs.has).whole
    path = blobs.path(one.digest)
    path.chmod(0o644)
    path.write_bytes(b"x" * one.size)
    assert ContentUploads(blobs).standing("ann", one, held=blobs.has) == UploadProgress(0, 0, whole=False)
    assert models.register("mnist", send_folder(blobs, files), ModelFacts(), 2.0) == version
    assert path.read_bytes() == files["weights"]
