"""What the registry hands out to others as archives: code, models and datasets, read from the blobs while they are sent."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from fairway.errors import NotFoundError, RefusedError
from fairway.registry import snapshot
from fairway.registry.blobs import Blobs
from fairway.registry.dataset import Datasets
from fairway.registry.manifest import Entry, Manifest
from fairway.registry.model import Models
from fairway.runtime.pod import archive

_WORTH = 1 << 18
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Handed:
    """A folder on its way out."""

    digest: str
    """Of its manifest: whoever takes it can see that it is whole."""
    pieces: Iterator[bytes]


class Handing:
    """Reads the registry; changes nothing."""

    def __init__(self, blobs: Blobs, models: Models, datasets: Datasets) -> None:
        self._blobs = blobs
        self._models = models
        self._datasets = datasets

    def code(self, digest: str) -> Handed:
        """A snapshot of code, compressed: it is text for the most part."""
        if not _DIGEST.fullmatch(digest):
            message = f"{digest!r} is no digest of code"
            raise NotFoundError(message, fix="submit it again with its code")
        return Handed(digest, _compressed(self._packed(digest)))

    def model(self, reference: str) -> Handed:
        """The files of a model version, `mnist@3`."""
        digest = self._models.get(reference).digest
        return Handed(digest, self._packed(digest))

    def dataset(self, reference: str) -> Handed:
        """The files of a dataset version that was copied."""
        version = self._datasets.get(reference)
        if version.reference:
            message = f"{version} is a reference: its content was never copied"
            raise RefusedError(message, fix=f"read it from {version.reference}")
        return Handed(version.digest, self._packed(version.digest))

    def _packed(self, digest: str) -> Iterator[bytes]:
        manifest = snapshot.load(digest, self._blobs)
        self._blobs.provide(entry.sha256 for entry in manifest.entries if entry.sha256)
        return _gathered(packed(manifest, self._blobs))


def packed(manifest: Manifest, blobs: Blobs) -> Iterator[bytes]:
    """A folder as a tar archive, in pieces."""
    for entry in manifest.entries:
        yield _header(entry)
        if entry.sha256:
            with open(blobs.place(entry.sha256), "rb") as file:
                while block := file.read(archive.BLOCK):
                    yield block
            yield archive.padding(entry.size)
    yield archive.END


def _header(entry: Entry) -> bytes:
    if entry.symlink:
        return archive.header(entry.path, mode=entry.mode, kind=tarfile.SYMTYPE, link=entry.symlink)
    if entry.is_folder:
        return archive.header(entry.path, mode=entry.mode, kind=tarfile.DIRTYPE)
    return archive.header(entry.path, entry.size, entry.mode)


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """As gzip does it."""

    def squeezed() -> Iterator[bytes]:
        squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
        for piece in pieces:
            yield squeeze.compress(piece)
        yield squeeze.flush()

    return _gathered(squeezed())


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that are worth a step of the server's own."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= _WORTH:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)
