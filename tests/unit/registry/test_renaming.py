"""Renaming a model with all its versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.errors import ConflictError, NotFoundError
from fairway.registry.blob import BlobStore
from fairway.registry.model import ModelRegistry
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import onnx_file


def filled(home: Path) -> ModelRegistry:
    models = ModelRegistry(home, BlobStore(home / "blobs"))
    for number in range(3):
        (home / f"{number}.onnx").write_bytes(onnx_file(weights=(str(number),)))
        models.register("mnist", str(home / f"{number}.onnx"), ModelFacts(tags={"n": str(number)}), 10.0 + number)
    models.promote(models.get("mnist@2"), "champion")
    models.tag(models.get("mnist@3"), {"more": "yes"})
    models.delete(models.get("mnist@1"))
    return models


def test_versions_aliases_tags_and_taken_numbers_go_along(tmp_path: Path) -> None:
    models = filled(tmp_path)
    before = models.get("mnist@2")
    assert models.folder(before).is_dir()
    models.rename("mnist", "digits", "Digits")
    assert [str(each) for each in models.list()] == ["digits@2", "digits@3"]
    assert models.names() == ["digits"]
    version = models.get("digits@champion")
    assert (version.version, version.digest, version.title, version.created) == (2, before.digest, "Digits", before.created)
    assert models.get("digits@3").tags == {"n": "2", "more": "yes"}
    assert [each.path for each in models.files(version)] == ["1.onnx"]
    with pytest.raises(NotFoundError):
        models.get("mnist")
    # Another object reads the same from the disk, and numbers continue.
    other = ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs"))
    assert other.list() == models.list()
    assert models.register("digits", str(tmp_path / "0.onnx"), ModelFacts(), 20.0).version == 4
    assert models.register("mnist", str(tmp_path / "0.onnx"), ModelFacts(), 21.0).version == 1


def test_a_name_that_is_taken_is_refused_and_one_that_was_used_keeps_its_numbers(tmp_path: Path) -> None:
    models = filled(tmp_path)
    for _ in range(4):
        models.register("digits", str(tmp_path / "0.onnx"), ModelFacts(tags={"t": str(_)}), 30.0 + _)
    with pytest.raises(ConflictError, match="digits"):
        models.rename("mnist", "digits", "")
    for version in models.list("digits"):
        models.delete(version)
    models.rename("mnist", "digits", "")
    assert [each.version for each in models.list("digits")] == [2, 3]
    assert models.register("digits", str(tmp_path / "0.onnx"), ModelFacts(), 40.0).version == 5
    with pytest.raises(NotFoundError):
        models.rename("mnist", "other", "")
