"""What the registry hands out to others as archives: code, models and datasets, read from the blobs while they are sent."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from fairway.errors import NotFoundError
from fairway.registry.blobs import Blobs
from fairway.registry.dataset import Datasets
from fairway.registry.model import Models
from fairway.registry.packing import gathered, packed

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
        return Handed(digest, _compressed(packed(digest, self._blobs)))

    def model(self, reference: str) -> Handed:
        """The files of a model version, `mnist@3`."""
        version = self._models.get(reference)
        return Handed(version.digest, self._models.packed(version))

    def dataset(self, reference: str) -> Handed:
        """The files of a dataset version that was copied."""
        version = self._datasets.get(reference)
        return Handed(version.digest, self._datasets.packed(version))


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """As gzip does it."""

    def squeezed() -> Iterator[bytes]:
        squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
        for piece in pieces:
            yield squeeze.compress(piece)
        yield squeeze.flush()

    return gathered(squeezed())
