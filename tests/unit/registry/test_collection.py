"""Unused content is deleted while other processes register the same content: no version ever lacks a file."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import onnx_file

ROUNDS = 40


def source_in(folder: Path) -> Path:
    """Create a model with a second file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(onnx_file())
    (folder / "weights").write_bytes(b"w" * 50_000)
    return folder


def come_and_go(root: Path, name: str) -> None:
    """Register the same content again and again, read it, and delete it."""
    models, source = ModelRegistry(root, BlobStore(root / "blobs")), source_in(root / f"source-{name}")
    for number in range(ROUNDS):
        version = models.register(name, str(source), ModelFacts(tags={"n": str(number)}), 1.0)
        models.pull(version, str(root / "pulled" / name / str(number)))
        models.delete(version)


def collect(root: Path, over: threading.Event) -> int:
    """Delete unused content continuously; return how often it was possible."""
    models, done = ModelRegistry(root, BlobStore(root / "blobs")), 0
    while not over.is_set():
        done += models.free([]) is not None
    return done


def test_two_threads_register_what_a_third_collects(tmp_path: Path) -> None:
    over = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        collecting = pool.submit(collect, tmp_path, over)
        writers = [pool.submit(come_and_go, tmp_path, name) for name in ("a", "b")]
        wait(writers)
        over.set()
    for writer in writers:
        writer.result()
    assert collecting.result() > 0
    ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs")).free([])
    left = [path for path in (tmp_path / "blobs" / "sha256").rglob("*") if path.is_file()]
    assert left == [], "nothing is left of what nobody names"


def test_another_process_registers_what_this_one_collects(tmp_path: Path) -> None:
    other = multiprocessing.get_context("spawn").Process(target=come_and_go, args=(tmp_path, "a"))
    other.start()
    models = ModelRegistry(tmp_path, BlobStore(tmp_path / "blobs"))
    while other.is_alive():
        models.free([])
    other.join()
    assert other.exitcode == 0
    assert len(list((tmp_path / "pulled" / "a").iterdir())) == ROUNDS


def test_code_whose_run_is_not_recorded_yet_stays(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    models, source = ModelRegistry(tmp_path, blobs), source_in(tmp_path / "source")
    models.delete(models.register("m", str(source), ModelFacts(), 1.0))
    taken = snapshot.take(source, blobs)
    assert models.free([]) == 0
    snapshot.materialise(taken.manifest, blobs, tmp_path / "code")


def test_datasets_share_content_with_models_that_go(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    models, datasets, source = ModelRegistry(tmp_path, blobs), DatasetRegistry(tmp_path, blobs), source_in(tmp_path / "source")
    version, shared = models.register("m", str(source), ModelFacts(), 1.0), datasets.add("d", source, 1.0)
    models.delete(version)
    assert models.free([]) == 0
    assert (datasets.resolve("d") / "weights").exists()
    datasets.delete(shared)
    assert (models.free([]) or 0) > 50_000
