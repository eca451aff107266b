"""The registry keeps the contract of `ModelStore`, with its content in a folder and in an object store."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from fairway.app.port.model_store import ModelStore
from fairway.registry.blob import BlobStore
from fairway.registry.model import ModelRegistry
from fairway.registry.remote_blob import RemoteBlobStore
from fairway.testing.conformance.model_conformance import ModelStoreConformance, make_source


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


class TestInAFolder(ModelStoreConformance):
    @pytest.fixture
    def models(self, tmp_path: Path) -> ModelStore:
        return ModelRegistry(tmp_path / "home", BlobStore(tmp_path / "home" / "blobs"))


class TestInAnObjectStore(ModelStoreConformance):
    @pytest.fixture
    def models(self, tmp_path: Path) -> ModelStore:
        return ModelRegistry(tmp_path / "home", RemoteBlobStore(tmp_path / "home" / "blobs", f"memory://{uuid.uuid4()}/fairway"))


class TestBehindAFileSystemThatRenames(ModelStoreConformance):
    @pytest.fixture
    def models(self, tmp_path: Path) -> ModelStore:
        return ModelRegistry(tmp_path / "home", RemoteBlobStore(tmp_path / "home" / "blobs", f"file://{tmp_path}/store"))
