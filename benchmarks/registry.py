"""A large model registered again unchanged, against one plain SHA-256 over the same files.

    registry.py [GIGABYTES]     default 10

CPU time is compared; the kernel counts the bytes that the process reads and writes, also those from the page cache.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import interleaved, median_ratio, tell

from fairway.registry.blob import BlobStore
from fairway.registry.model import ModelRegistry
from fairway.state.model import ModelFacts
from fairway.testing.builder.model_file import onnx_file

ROUNDS = 3
LARGE, SMALL = 8, 200
"""Numbers of files: few with nearly all of the bytes, and many small ones."""


def main() -> None:
    """Create the files, register them, and register them again."""
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else "10") * 1e9)
    with tempfile.TemporaryDirectory(dir=os.environ.get("FAIRWAY_BENCH_DIR")) as folder:
        source = make_source(Path(folder, "source"), size)
        models = ModelRegistry(Path(folder, "home"), BlobStore(Path(folder, "home", "blobs")))
        total = sum(path.stat().st_size for path in source.iterdir())
        first = models.register("large", str(source), ModelFacts(), 1.0)

        def plain() -> float:
            return cpu(lambda: [digest(path) for path in source.iterdir()])

        def again() -> float:
            return cpu(lambda: models.register("large", str(source), ModelFacts(), 2.0))

        found = interleaved(ROUNDS, plain=plain, again=again)
        read, wrote = counted(lambda: models.register("large", str(source), ModelFacts(), 3.0))
        assert models.list() == [first]
    ratio = median_ratio(found["again"], found["plain"])
    what = f"{total / 1e9:.1f} GB registered again unchanged"
    tell(f"{what}: CPU / one plain SHA-256 of the files", ratio, "<= 1.1", met=ratio <= 1.1)
    tell(f"{what}: bytes read / bytes there", read / total, "<= 1.01", met=read / total <= 1.01)
    tell(f"{what}: bytes written", wrote, "0", met=wrote == 0)


def make_source(folder: Path, size: int) -> Path:
    """Create a model whose weights are in files beside it."""
    folder.mkdir()
    chance = random.Random(0)
    (folder / "model.onnx").write_bytes(onnx_file())
    for number in range(SMALL):
        (folder / f"small-{number}").write_bytes(chance.randbytes(20_000))
    for number in range(LARGE):
        block = chance.randbytes(1 << 20)
        with (folder / f"large-{number}").open("wb") as file:
            for place in range(size // LARGE >> 20):
                file.write(place.to_bytes(8, "little") + block[8:])
    return folder


def digest(path: Path) -> str:
    """Return the digest by one plain read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cpu(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, over all threads of this process."""
    before = time.process_time()
    call()
    return time.process_time() - before


def counted(call: Callable[[], object]) -> tuple[int, int]:
    """Return the bytes read and written during a call."""

    def count() -> tuple[int, int]:
        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(lines["rchar"]), int(lines["wchar"])

    before = count()
    call()
    after = count()
    return after[0] - before[0], after[1] - before[1]


if __name__ == "__main__":
    main()
