"""Versions of models in a folder: cases that the suite of the port does not cover."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairway.registry.blob import BlobStore
from fairway.registry.model import ModelRegistry
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import onnx_file
from fairway.testing.conformance.model_conformance import FACTS, make_source


@pytest.fixture
def models(tmp_path: Path) -> ModelRegistry:
    return ModelRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


def test_unchanged_content_registered_again_writes_nothing(models: ModelRegistry, source: Path, tmp_path: Path) -> None:
    (source / "weights.data").write_bytes(os.urandom(3 << 20))
    models.register("mnist", str(source), FACTS, 1.0)
    before = stamps(tmp_path / "home")
    assert models.register("mnist", str(source), FACTS, 2.0).version == 1
    assert stamps(tmp_path / "home") == before


def test_a_version_is_read_anew_by_another_process(models: ModelRegistry, source: Path, tmp_path: Path) -> None:
    version = models.register("mnist", str(source), FACTS, 1.0)
    models.promote(version, "champion")
    models.tag(version, {"a": "b"})
    again = ModelRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))
    assert again.list() == models.list()
    assert again.get("mnist@champion").tags == {"team": "nlp", "a": "b"}


def test_what_is_laid_out_shares_its_space_and_cannot_be_written(models: ModelRegistry, source: Path) -> None:
    state = (models.folder(models.register("mnist", str(source), FACTS, 1.0)) / "model.onnx").stat()
    assert state.st_nlink == 2
    assert state.st_mode & 0o222 == 0


def test_a_deleted_version_leaves_no_folder(models: ModelRegistry, source: Path) -> None:
    version = models.register("mnist", str(source), FACTS, 1.0)
    folder = models.folder(version)
    models.delete(version)
    assert not folder.exists()
    assert list(folder.parent.iterdir()) == []


CODE = """
import sys
from pathlib import Path
from fairway.app.system import crash_point
from fairway.registry.blob import BlobStore
from fairway.registry.model import ModelRegistry
from fairway.state.model import ModelFacts
home = Path(sys.argv[1])
models = ModelRegistry(home, BlobStore(home / 'blobs'))
act, place = sys.argv[3:5]
version = models.get('mnist@1') if act != 'register' else None
if act == 'delete':
    models.folder(version)
crash_point.arm(place)
if act == 'register':
    models.register('mnist', sys.argv[2], ModelFacts(), 1.0)
elif act == 'promote':
    models.promote(version, 'champion')
else:
    models.delete(version)
"""


@pytest.mark.parametrize("act", ["register", "promote", "delete"])
def test_a_crash_leaves_all_or_nothing(models: ModelRegistry, source: Path, tmp_path: Path, act: str) -> None:
    if act != "register":
        models.register("mnist", str(source), ModelFacts(), 1.0)
    died = 0
    for place in [f"registry.rename:{moment}:{count}" for count in range(1, 9) for moment in ("before", "after")]:
        command = [sys.executable, "-c", CODE, str(tmp_path / "home"), str(source), act, place]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        if act == "delete" and ended.returncode == 1 and "NotFoundError" in ended.stderr:
            break
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        died += 1
        seen = ModelRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))
        for version in seen.list():
            assert (seen.folder(version) / "model.onnx").read_bytes() == onnx_file()
            assert version.aliases in ((), ("champion",))
    assert died >= 2
    finished = ModelRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs")).list()
    assert [str(version) for version in finished] == ([] if act == "delete" else ["mnist@1"])
