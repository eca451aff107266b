"""Pods fetch complete inputs of their own run with their own token, over real connections and with the fetcher of the pods."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn

from fairway.api.mlflow.token import token_of
from fairway.api.pods.download import DownloadRoutes, make_given
from fairway.app.tracking.run import TokenCaller
from fairway.errors import DeniedError
from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.content_export import ContentExport
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.runtime.pod import fetch
from fairway.state.model import ModelFacts

SECRET = b"secret"
RUN, OTHER, SERVICE = TokenCaller("team", "mnist-1"), TokenCaller("other", "mnist-1"), TokenCaller("team", "service:mnist")


@dataclass
class World:
    address: str
    blobs: BlobStore
    models: ModelRegistry
    datasets: DatasetRegistry
    codes: dict[TokenCaller, tuple[str, ...]]
    refused: set[tuple[TokenCaller, str, str]]
    """Requests that are denied, with the speaker."""

    def fetch(self, path: str, into: Path, speaker: TokenCaller = RUN, **more: str) -> int:
        return fetch.fetch(f"{self.address}{path}", token_of(SECRET, speaker), str(into), patience=0.0, **more)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    home = tmp_path / "home"
    blobs = BlobStore(home / "blobs")
    models, datasets = ModelRegistry(home, blobs), DatasetRegistry(home, blobs)
    codes: dict[TokenCaller, tuple[str, ...]] = {}
    refused: set[tuple[TokenCaller, str, str]] = set()

    async def entitled(speaker: TokenCaller, kind: str, reference: str) -> str:
        if (speaker, kind, reference) in refused:
            message = f"{reference} is not one of the inputs"
            raise DeniedError(message)
        return reference

    given = DownloadRoutes(ContentExport(blobs, models, datasets), lambda speaker: codes.get(speaker, ()), entitled, SECRET)
    app = make_given(given.routes())
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        serving.start()
        try:
            yield World(f"http://127.0.0.1:{listening.getsockname()[1]}", blobs, models, datasets, codes, refused)
        finally:
            server.should_exit = True
            serving.join()


def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "package" / "empty").mkdir(parents=True)
    (folder / "package" / "größe.py").write_text("print(1)\n")
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 12_000)
    (folder / "link").symlink_to("package/größe.py")
    (folder / "run.sh").write_text("true\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def test_code_comes_as_it_was_submitted_and_only_to_its_run(world: World, tmp_path: Path) -> None:
    source = code(tmp_path)
    digest = snapshot.take(source, world.blobs).digest
    world.codes[RUN] = (digest,)
    target = tmp_path / "pod"
    assert world.fetch("/v1/given/code", target, digest=digest) == 5
    assert snapshot.take(target, world.blobs).digest == digest, "the same content, byte by byte"
    with pytest.raises(fetch.RequestRejectedError, match="other/mnist-1 has no code here"):
        world.fetch("/v1/given/code", target, OTHER)


def test_a_service_gets_the_code_of_each_of_its_revisions(world: World, tmp_path: Path) -> None:
    digest = snapshot.take(code(tmp_path), world.blobs).digest
    (tmp_path / "code" / "more.py").write_text("2")
    newest = snapshot.take(tmp_path / "code", world.blobs).digest
    world.codes[SERVICE] = (newest, digest)
    assert world.fetch("/v1/given/code", tmp_path / "new", SERVICE) == 6
    assert world.fetch(f"/v1/given/code?digest={digest}", tmp_path / "old", SERVICE) == 5
    with pytest.raises(fetch.RequestRejectedError, match="has no code"):
        world.fetch(f"/v1/given/code?digest={'0' * 64}", tmp_path / "none", SERVICE)


def test_models_and_datasets_come_by_version(world: World, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    world.models.register("mnist", str(tmp_path / "model"), ModelFacts(), 1.0)
    (tmp_path / "rows.csv").write_text("1,2\n")
    world.datasets.add("rows", tmp_path / "rows.csv", 1.0)
    world.datasets.add("far", tmp_path / "rows.csv", 1.0, reference=True)
    world.fetch("/v1/given/models/mnist@1", tmp_path / "a", SERVICE)
    assert (tmp_path / "a" / "model.safetensors").is_file()
    world.fetch("/v1/given/datasets/rows@latest", tmp_path / "b")
    assert (tmp_path / "b" / "rows.csv").read_text() == "1,2\n"
    world.refused |= {(RUN, "models", "mnist@1"), (SERVICE, "datasets", "rows@1")}
    for path, speaker in (("models/mnist@1", RUN), ("datasets/rows@1", SERVICE)):
        with pytest.raises(fetch.RequestRejectedError, match="is not one of the inputs"):
            world.fetch(f"/v1/given/{path}", tmp_path / "none", speaker)
    with pytest.raises(fetch.RequestRejectedError, match="no version or alias '7'"):
        world.fetch("/v1/given/models/mnist@7", tmp_path / "c")
    with pytest.raises(fetch.RequestRejectedError, match="is a reference"):
        world.fetch("/v1/given/datasets/far@1", tmp_path / "c")


@pytest.mark.parametrize(
    "token", ["", "team/mnist-1.0000", token_of(b"another secret", RUN), token_of(SECRET, TokenCaller("team", ""))]
)
def test_who_has_no_token_of_a_run_gets_nothing(world: World, tmp_path: Path, token: str) -> None:
    world.codes[RUN] = (snapshot.take(code(tmp_path), world.blobs).digest,)
    for path in ("/v1/given/code", "/v1/given/models/mnist@1", "/v1/given/datasets/rows@1"):
        with pytest.raises(fetch.RequestRejectedError, match="not the token of a run"):
            fetch.fetch(world.address + path, token, str(tmp_path / "pod"))


def test_content_that_is_damaged_in_the_registry_never_becomes_a_folder(world: World, tmp_path: Path) -> None:
    source = code(tmp_path)
    taken = snapshot.take(source, world.blobs)
    world.codes[RUN] = (taken.digest,)
    place = world.blobs.path(next(entry.sha256 for entry in taken.manifest.entries if entry.path == "run.sh"))
    place.chmod(0o644)
    place.write_text("evil\n")
    # The error comes at once and names the file: a retry would change nothing.
    with pytest.raises(fetch.RequestRejectedError, match=r"run\.sh is damaged"):
        world.fetch("/v1/given/code", tmp_path / "pod")
    assert list((tmp_path / "pod").iterdir()) == []
