"""Sends content of the registry as archives: code, models and datasets, read from the blobs while they are sent."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from fairway.errors import NotFoundError
from fairway.registry.blob import BlobStore
from fairway.registry.content_archive import gathered, packed
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class OutgoingArchive:
    """A folder that is being sent."""

    digest: str
    """The digest of its manifest, by which the receiver can verify that it is complete."""
    pieces: Iterator[bytes]


class ContentExport:
    """Sends content; changes nothing in the registry."""

    def __init__(self, blobs: BlobStore, models: ModelRegistry, datasets: DatasetRegistry) -> None:
        self._blobs = blobs
        self._models = models
        self._datasets = datasets

    def code(self, digest: str) -> OutgoingArchive:
        """Return a snapshot of code, compressed: it is mostly text."""
        if not _DIGEST.fullmatch(digest):
            message = f"{digest!r} is not a digest of code"
            raise NotFoundError(message, fix="submit it again with its code")
        return OutgoingArchive(digest, _compressed(packed(digest, self._blobs)))

    def model(self, reference: str) -> OutgoingArchive:
        """Return the files of a model version, `mnist@3`."""
        version = self._models.get(reference)
        return OutgoingArchive(version.digest, self._models.packed(version))

    def dataset(self, reference: str) -> OutgoingArchive:
        """Return the files of a dataset version that was copied."""
        version = self._datasets.get(reference)
        return OutgoingArchive(version.digest, self._datasets.packed(version))


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Return the pieces compressed with gzip."""

    def squeezed() -> Iterator[bytes]:
        compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
        for piece in pieces:
            yield compressor.compress(piece)
        yield compressor.flush()

    return gathered(squeezed())
